"""Modules: the SSMs, the layers around them, the residual block."""
