"""Measure speed and memory once, in a process of its own: `python -m delayssm_lab.measure.speed POINT`."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import psutil
import torch
from torch import Tensor

from delayssm.allocator import keep_freed_memory
from delayssm.layers.block import Block
from delayssm.layers.layer import DS4D, S4D
from delayssm.layers.optim import param_groups
from delayssm.layers.stack import Stack
from delayssm_lab.environment import Device, peak_memory, wait
from delayssm_lab.measure.dense import DenseStep
from delayssm_lab.studies.study import Found

Memory = Literal["dense", "ring", "chosen"]


@dataclass(frozen=True)
class Sizes:
    """A stack."""

    depth: int = 4
    d_state: int = 64
    d_model: int = 256
    delayed: bool = True

    def build(self, max_delay: int) -> Stack:
        """Delays on a grid up to `max_delay`."""
        torch.manual_seed(0)
        layers = [
            DS4D(self.d_model, self.d_state, max_delay) if self.delayed else S4D(self.d_model, self.d_state)
            for _ in range(self.depth)
        ]
        return Stack(map(Block, layers))


@dataclass(frozen=True)
class Training:
    """Training steps at one length. Rounds repeat a measurement, so that one bad moment does not decide."""

    sizes: Sizes
    length: int
    batch_size: int
    round: int
    device: Device

    def measure(self) -> Found:
        keep_freed_memory()
        stack = self.sizes.build(self.length).to(self.device)
        optimiser = torch.optim.AdamW(param_groups(stack, 1e-3, 1e-4, 0.05), fused=True)

        def step(rows: int) -> None:
            x = torch.randn(rows, self.length, self.sizes.d_model, device=self.device)
            optimiser.zero_grad()
            stack(x).square().mean().backward()
            optimiser.step()

        rows = self._rows_that_fit(step)
        times = [_seconds(partial(step, rows), self.device) for _ in range(4)]
        return {
            "batch": rows,
            "tokens/s": rows * self.length / min(times[1:]),
            "peak bytes": peak_memory(self.device),
            "parameters": sum(p.numel() for p in stack.parameters()),
        }

    def _rows_that_fit(self, step: Callable[[int], None]) -> int:
        """As many as asked for, or else half as many and so on. What a row takes shows between one and two."""
        peaks = []
        for rows in (1, 2):
            step(rows)
            peaks.append(peak_memory(self.device))
        limit = 0.85 * _available(self.device)
        rows = self.batch_size
        while rows > 1 and peaks[0] + (rows - 1) * (peaks[1] - peaks[0]) > limit:
            rows //= 2
        return rows


@dataclass(frozen=True)
class Decoding:
    """Tokens one by one at the end of a stream of `length` tokens, in a model whose history is `history`.

    What the state takes is that of a model and a stream of `length`.
    """

    sizes: Sizes
    length: int
    history: int
    memory: Memory
    tokens: int
    round: int
    device: Device

    @torch.no_grad()
    def measure(self) -> Found:
        stack = self.sizes.build(self.history).to(self.device).eval()
        x = torch.randn(self.length, 1, self.sizes.d_model, device=self.device)
        first = self.length - self.tokens
        step: Callable[[Tensor], Tensor]
        if self.memory == "dense":
            step = DenseStep(stack, 1, self.history)
            for t in range(first):
                step(x[t])
        else:
            state = stack.init_state(1, self.history if self.memory == "chosen" else None)
            _, state = stack.stream(x[:first].transpose(0, 1), state)
            step = stack.decoder(state)
        warm = first + self.tokens // 9  # the paper's 32 of 288
        for t in range(first, warm):
            step(x[t])
        times = [_seconds(partial(step, x[t]), self.device) for t in range(warm, self.length)]
        return {"tokens/s": 1 / statistics.median(times), "state bytes": self._state_bytes()}

    def _state_bytes(self) -> int:
        stack = self.sizes.build(self.length)
        if self.memory == "dense":
            return DenseStep(stack, 1, self.length).nbytes
        return stack.init_state(1, self.length if self.memory == "chosen" else None).nbytes


Point = Training | Decoding


def _seconds(function: Callable[[], object], device: Device) -> float:
    wait(device)
    began = time.perf_counter()
    function()
    wait(device)
    return time.perf_counter() - began


def _available(device: Device) -> int:
    """For this process, what it has already included."""
    if device == "cpu":
        return int(psutil.virtual_memory().available + psutil.Process().memory_info().rss)
    return torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()


def _point(content: dict[str, object]) -> Point:
    sizes = Sizes(**content.pop("sizes"))  # type: ignore[arg-type]
    kind = Decoding if "memory" in content else Training
    return kind(sizes=sizes, **content)  # type: ignore[arg-type]


if __name__ == "__main__":
    print(json.dumps(_point(json.loads(sys.argv[1])).measure()))  # noqa: T201
