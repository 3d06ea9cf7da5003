"""Generators of synthetic data sets."""
