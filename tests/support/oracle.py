"""Oracle that solves every delayed-memory task, which shows that all targets can be predicted."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm_lab.tasks.delayed import DelayedMemory


class Oracle(nn.Module):
    """Stand-in for a model. Each answer uses only the tokens up to its position."""

    def __init__(self, task: DelayedMemory) -> None:
        super().__init__()
        self.task = task

    def forward(self, x: Int[Tensor, "B L"], at: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return logits that are 1 for the correct token and 0 for all others."""
        logits = torch.zeros(*at.shape, self.task.vocab_size)
        for row, positions in enumerate(at.tolist()):
            for i, position in enumerate(positions):
                logits[row, i, self._answer(x[row, : position + 1].tolist())] = 1
        return logits

    def _answer(self, tokens: list[int]) -> int:
        data = tokens[: self.task.data_length]
        t = len(tokens) - 1 - tokens.index(self.task.go)  # number of answers since the go signal
        weights = self.task.mapping.weights().tolist()
        return round(float(sum(weight * data[t - lag] for lag, weight in enumerate(weights) if lag <= t)))
