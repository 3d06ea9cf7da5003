"""Files that are complete at every moment, and tensors in files."""
