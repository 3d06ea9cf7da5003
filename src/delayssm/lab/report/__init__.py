"""What runs have found, to look at."""
