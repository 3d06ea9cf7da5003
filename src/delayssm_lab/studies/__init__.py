"""Studies: the tables and figures of the paper, made again from runs of our own."""
