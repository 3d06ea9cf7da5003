"""Data sets that are drawn, not downloaded."""
