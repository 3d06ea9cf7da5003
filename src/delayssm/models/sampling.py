"""Choice of the next token."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """How to choose a token from logits.

    Args:
        temperature: Divisor of the logits; 0 takes the most likely token.
        top_k: Number of most likely tokens to choose from; None: all.
        top_p: Choose from the fewest tokens, of these, that have this probability together; None: all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("temperature", self.temperature), ("top_k", self.top_k), ("top_p", self.top_p)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise TypeError(f"{name} must be a number, not {value!r}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise ValueError(f"temperature must be a number of at least 0, not {self.temperature}")
        if self.top_k is not None and (self.top_k < 1 or self.top_k != int(self.top_k)):
            raise ValueError(f"top_k must be a whole number of at least 1, or None for all tokens, not {self.top_k}")
        if self.top_k is not None:
            object.__setattr__(self, "top_k", int(self.top_k))  # 5.0 is as good as 5
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p must lie in (0, 1], or be None for all tokens, not {self.top_p}")

    def probabilities(self, logits: Float[Tensor, " V"]) -> Float[Tensor, " V"]:
        """Return the probabilities that the next token is drawn from."""
        if not math.isfinite(logits.max()):
            raise ValueError(
                "the logits are not finite, so there is no next token: the model's parameters have diverged, or are NaN"
            )
        if self.temperature == 0:
            return torch.zeros_like(logits).index_fill_(0, logits.argmax(), 1.0)
        # In float64, and from the largest down, every temperature and every top_p has a meaning, however small.
        below = logits.double() - logits.max()
        ordered, order = (below / self.temperature).sort(descending=True, stable=True)
        kept = ordered[: self.top_k].softmax(0)
        if self.top_p is not None:
            before = kept.cumsum(0) - kept
            kept = torch.where(before < self.top_p, kept, 0)
        probabilities = torch.zeros_like(below)
        probabilities[order[: self.top_k]] = kept / kept.sum()
        return probabilities.float()

    def draw(self, logits: Float[Tensor, " V"], generator: torch.Generator) -> int:
        """Draw one token."""
        return int(torch.multinomial(self.probabilities(logits), 1, generator=generator))
