"""The paper's tables and figures, made again from our own measurements."""
