"""Errors of results against more exact ones."""

from torch import Tensor


def relative_rms(result: Tensor, truth: Tensor) -> float:
    """Return the RMS of the error over the RMS of the truth."""
    return float((result.double() - truth.double()).square().mean().sqrt() / truth.double().square().mean().sqrt())
