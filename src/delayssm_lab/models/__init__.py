"""The models that are compared: state-space models and baselines."""
