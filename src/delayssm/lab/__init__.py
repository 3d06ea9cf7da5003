"""Experiments. What is here may need the `lab` extra."""
