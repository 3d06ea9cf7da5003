"""Speed of causal convolutions, forward and backward, beside the same with torch.fft."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from delayssm.allocator import keep_freed_memory
from delayssm_lab.measure.limits import LIMITS, Limits, show_limits
from delayssm_lab.measure.measurement import Isolated, of_kind
from delayssm_lab.measure.resources import fastest_in_turn
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

#: Directions, and how many signals each has to read and write.
SIGNALS = {"forward": 2, "backward": 3}


@dataclass(frozen=True)
class Convolution:
    """Convolutions of one shape, by both implementations in turn; both keep freed memory."""

    batch_size: int
    length: int
    d_model: int
    rounds: int = 20

    def measure(self) -> Readings:
        from delayssm.backends import eager, numba_cpu

        keep_freed_memory()
        torch.manual_seed(0)
        x, grad = torch.randn(2, self.batch_size, self.length, self.d_model)
        kernel = torch.randn(1, self.length, self.d_model)
        calls: dict[str, Callable[[], object]] = {
            "this library, forward": partial(numba_cpu.convolve, x, kernel),
            "torch.fft, forward": partial(eager.convolve, x, kernel),
            "this library, backward": partial(numba_cpu.convolve_backward, grad, x, kernel),
            "torch.fft, backward": partial(eager.convolve_backward, grad, x, kernel),
        }
        return fastest_in_turn(calls, self.rounds)


@dataclass(frozen=True)
class ConvolutionSpeed(Isolated[Convolution | Limits]):
    """The fastest of several convolutions of each shape: batch size, length and number of channels."""

    name = "convolution-speed"
    title = "Speed of causal convolutions, forward and backward"

    shapes: tuple[tuple[int, int, int], ...] = (
        (8, 1024, 256),
        (32, 1024, 256),
        (8, 4096, 256),
        (2, 16_384, 256),
        (64, 1024, 133),
        (64, 1024, 241),
    )
    rounds: int = 20
    limits: Limits = LIMITS

    def points(self) -> list[Convolution | Limits]:
        return [self.limits, *(Convolution(*shape, self.rounds) for shape in self.shapes)]

    def show(self, results: Mapping[Convolution | Limits, Readings]) -> Iterable[File]:
        times = ["this library, ms", "torch.fft, ms", "times faster"]
        head = ["batch x length", "H", "pass", *times, "this library, GB/s"]
        rows = []
        for point, values in of_kind(Convolution, results).items():
            for direction, signals in SIGNALS.items():
                ours, theirs = (values[f"{name}, {direction}"] for name in ("this library", "torch.fft"))
                size = 4 * signals * point.batch_size * point.length * point.d_model
                rows.append([
                    f"{point.batch_size} x {point.length:,}",
                    str(point.d_model),
                    direction,
                    f"{ours * 1e3:.1f}",
                    f"{theirs * 1e3:.1f}",
                    f"{theirs / ours:.1f}",
                    f"{size / ours / 1e9:.1f}",
                ])  # fmt: skip
        yield "table.md", tables.markdown(head, rows).encode()
        yield from show_limits(results)
