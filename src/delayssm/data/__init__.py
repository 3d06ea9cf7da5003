"""Published data sets: what they are, reading and checking them, and the arrays they become."""
