"""The answers as a person would find them. Solves every task, so a score below 1 is the model's doing."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm_lab.tasks.delayed import DelayedMemory


class Oracle(nn.Module):
    """Stands where a model stands. Each answer uses only the tokens up to its position."""

    def __init__(self, task: DelayedMemory) -> None:
        super().__init__()
        self.task = task

    def forward(self, x: Int[Tensor, "B L"], at: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """All probability on one token."""
        logits = torch.zeros(*at.shape, self.task.vocab_size)
        for row, positions in enumerate(at.tolist()):
            for i, position in enumerate(positions):
                logits[row, i, self._answer(x[row, : position + 1].tolist())] = 1
        return logits

    def _answer(self, seen: list[int]) -> int:
        data = seen[: self.task.data_length]
        t = len(seen) - 1 - seen.index(self.task.go)  # answers given since the signal
        weights = self.task.mapping.weights().tolist()
        return round(float(sum(weight * data[t - lag] for lag, weight in enumerate(weights) if lag <= t)))
