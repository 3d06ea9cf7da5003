"""Prepared data sets: memory-mapped arrays with a description."""
