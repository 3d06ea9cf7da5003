"""Some positions of each row."""

from jaxtyping import Float, Int
from torch import Tensor


def take(y: Float[Tensor, "B L H"], at: Int[Tensor, "B T"]) -> Float[Tensor, "B T H"]:
    """y at the positions `at` of each row."""
    if at.ndim != 2 or len(at) != len(y):
        raise ValueError(f"positions must have one row for each of the {len(y)} rows, not shape {tuple(at.shape)}")
    return y.gather(1, at.unsqueeze(-1).expand(-1, -1, y.shape[-1]))
