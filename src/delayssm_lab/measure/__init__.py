"""Measurements of speed, memory and accuracy: the studies behind BENCHMARKS.md."""
