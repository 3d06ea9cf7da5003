"""Published data sets: read, verified, and kept as arrays."""
