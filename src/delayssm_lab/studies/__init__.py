"""Studies that reproduce the tables and figures of the paper, and a few of their own."""
