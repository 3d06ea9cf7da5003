"""Data sets: readers of published files, generators, and the prepared arrays that both produce."""
