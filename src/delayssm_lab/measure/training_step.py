"""Training steps of DS4D, S4D, a textbook DS4D, and the dense products of their layers alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import nn

from delayssm.allocator import keep_freed_memory
from delayssm.layers.optim import param_groups
from delayssm_lab.environment import Device, peak_memory
from delayssm_lab.measure.errors import relative_rms
from delayssm_lab.measure.resources import fastest, rows_that_fit
from delayssm_lab.measure.stacks import StackSize
from delayssm_lab.measure.textbook import TextbookBlock
from delayssm_lab.study import Readings

Code = Literal["library", "bfloat16 products", "textbook", "textbook, memory kept", "dense products"]
Step = Callable[[], None]


@dataclass(frozen=True)
class TrainingStep:
    """Training steps on batches of one shape. Rounds are repetitions at different times.

    "bfloat16 products" is the library under autocast.
    """

    stack: StackSize
    code: Code
    batch_size: int
    length: int
    round: int = 0
    device: Device = "cpu"

    @property
    def label(self) -> str:
        """Model, for tables."""
        if self.code == "library":
            return self.stack.label
        model = f"{self.stack.family}, " if self.code == "bfloat16 products" else ""
        return f"{model}{self.code}, H {self.stack.d_model}"

    def measure(self) -> Readings:
        if self.code != "textbook":  # the plain textbook runs without this project's allocator settings
            keep_freed_memory()
        torch.manual_seed(0)
        prepare = self.prepare()
        rows = rows_that_fit(lambda rows: prepare(rows)(), self.batch_size, self.device)
        time = fastest(prepare(rows), 2 if self.code.startswith("textbook") else 5, self.device)
        values = {"rows": rows, "seconds": time, "peak bytes": peak_memory(self.device)}
        return {**values, "error": self._error()} if self.code == "bfloat16 products" else values

    def prepare(self) -> Callable[[int], Step]:
        """Return a function from a number of rows to a step on so many."""
        return self._products() if self.code == "dense products" else self._training()

    def _training(self) -> Callable[[int], Step]:
        """Return a function from a number of rows to a step of AdamW on so many."""
        size = self.stack
        model: nn.Module = (
            nn.Sequential(*(TextbookBlock(size.d_model, size.d_state, self.length) for _ in range(size.depth)))
            if self.code.startswith("textbook")
            else size.build(self.length)
        ).to(self.device)
        optimiser = torch.optim.AdamW(param_groups(model, 1e-3), fused=True)

        def step(x: torch.Tensor) -> None:
            optimiser.zero_grad()
            with self._precision():
                y = model(x)
            y.square().mean().backward()
            optimiser.step()

        return lambda rows: partial(step, torch.randn(rows, self.length, size.d_model, device=self.device))

    def _products(self) -> Callable[[int], Step]:
        """Return a function from a number of rows to one pass through the linear maps of all layers and back."""
        H, depth = self.stack.d_model, self.stack.depth
        layers = [nn.Linear(H, 2 * H, device=self.device) for _ in range(depth)]

        def prepare(rows: int) -> Step:
            shape = rows, self.length, H
            inputs = [torch.randn(shape, device=self.device, requires_grad=True) for _ in range(depth)]
            grad = torch.randn(rows, self.length, 2 * H, device=self.device)

            def step() -> None:
                for layer, x in zip(layers, inputs, strict=True):
                    layer(x).backward(grad)

            return step

        return prepare

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device, torch.bfloat16, enabled=self.code == "bfloat16 products")

    @torch.no_grad()
    def _error(self) -> float:
        """Return the relative RMS error of the outputs for one row against float32."""
        model = self.stack.build(self.length).to(self.device)
        x = torch.randn(1, self.length, self.stack.d_model, device=self.device)
        with self._precision():
            y = model(x)
        return relative_rms(y, model(x))
