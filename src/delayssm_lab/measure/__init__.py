"""Measurements of speed, memory and accuracy."""
