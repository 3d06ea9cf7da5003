"""The runs of the paper, and smaller versions of them."""
