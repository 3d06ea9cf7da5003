"""Training, evaluation and sweeps."""
