"""The training loop of estimators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from delayssm.layers.checks import check_whole
from delayssm.layers.optim import param_groups

P = TypeVar("P")
#: Returns the total loss of a model on some samples, and the number that it is a total of.
Loss = Callable[[Any, list[P]], tuple[Tensor, Tensor]]
_LARGEST_GRADIENT = 1.0


@dataclass(frozen=True)
class Training:
    """How a model is trained. The fields are explained in `SequenceEstimator`."""

    learning_rate: float
    weight_decay: float
    batch_size: int
    max_epochs: int
    patience: int | None
    verbose: bool

    def __post_init__(self) -> None:
        check_whole("batch_size", self.batch_size, 1)
        check_whole("max_epochs", self.max_epochs, 1)
        if self.patience is not None:
            check_whole("patience", self.patience, 1)
        if not (self.learning_rate > 0 and math.isfinite(self.learning_rate)):
            raise ValueError(f"learning_rate must be a positive number, not {self.learning_rate}")
        if not (self.weight_decay >= 0 and math.isfinite(self.weight_decay)):
            raise ValueError(f"weight_decay must be a number of at least 0, not {self.weight_decay}")

    def train(
        self, model: nn.Module, loss: Loss[P], samples: Sequence[P], held_out: Sequence[P]
    ) -> list[dict[str, float]]:
        """Train a model, leave it with the weights of its best epoch, and return the losses of each epoch.

        AdamW follows a half cosine from the learning rate to 0, and gradients are cut to norm 1. The best epoch is the
        one with the smallest loss on what was held out, or the last one if nothing was.
        """
        optimiser = torch.optim.AdamW(param_groups(model, self.learning_rate, weight_decay=self.weight_decay))
        steps = self.max_epochs * math.ceil(len(samples) / self.batch_size)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimiser, lambda step: 0.5 * (1 + math.cos(math.pi * step / max(1, steps)))
        )
        best, weights, since, history = math.inf, model.state_dict(), 0, []
        for epoch in range(1, self.max_epochs + 1):
            losses = {"epoch": float(epoch), "training": self._epoch(model, loss, samples, optimiser, schedule)}
            if held_out:
                losses["held out"] = self.evaluate(model, loss, held_out)
            self._require_finite(losses)
            self._report(losses)
            history.append(losses)
            since += 1
            if held_out and losses["held out"] < best:
                best, since = losses["held out"], 0
                weights = {name: value.clone() for name, value in model.state_dict().items()}
            if held_out and since == self.patience:
                break
        model.load_state_dict(weights)
        model.eval()
        return history

    @torch.no_grad()
    def evaluate(self, model: nn.Module, loss: Loss[P], samples: Sequence[P]) -> float:
        """Return the mean loss on samples."""
        model.eval()
        parts = [loss(model, list(samples[i : i + self.batch_size])) for i in range(0, len(samples), self.batch_size)]
        return float(sum(total for total, _ in parts) / sum(count for _, count in parts))

    def _epoch(
        self,
        model: nn.Module,
        loss: Loss[P],
        samples: Sequence[P],
        optimiser: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LRScheduler,
    ) -> float:
        model.train()
        total = count = 0.0
        for batch in torch.split(torch.randperm(len(samples)), self.batch_size):
            part, number = loss(model, [samples[i] for i in batch.tolist()])
            optimiser.zero_grad()
            torch.autograd.backward(part / number)
            nn.utils.clip_grad_norm_(model.parameters(), _LARGEST_GRADIENT)
            optimiser.step()
            schedule.step()
            total, count = total + float(part.detach()), count + float(number)
        return total / count

    def _require_finite(self, losses: dict[str, float]) -> None:
        if not all(map(math.isfinite, losses.values())):
            raise FloatingPointError(
                f"training has diverged in epoch {losses['epoch']:.0f}: use a learning_rate below {self.learning_rate}"
            )

    def _report(self, losses: dict[str, float]) -> None:
        if self.verbose:
            held_out = f"  held out {losses['held out']:.6f}" if "held out" in losses else ""
            text = f"epoch {losses['epoch']:.0f}/{self.max_epochs}  training {losses['training']:.6f}{held_out}"
            print(text, flush=True)  # noqa: T201
