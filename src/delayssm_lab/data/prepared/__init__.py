"""Prepared data sets: memory-mapped arrays and a description of them."""
