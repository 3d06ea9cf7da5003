"""Speed of the Fourier transform over channels beside torch.fft, on one thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from delayssm_lab.measure.limits import LIMITS, Limits, show_limits
from delayssm_lab.measure.measurement import Isolated, of_kind
from delayssm_lab.measure.resources import fastest_in_turn
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

#: Samples that are transformed in all rounds of a measurement together, for each row.
EFFORT = 1 << 19


@dataclass(frozen=True)
class Transforms:
    """Transforms of n real samples, in as many rows as make the time of the call itself small.

    They are what one signal of a causal convolution of n/2 samples needs. torch.fft transforms contiguous rows of n
    samples, the padding included. This library transforms n/2 samples without padding into m = n/2 complex numbers, or
    m = 64 if that is more.
    """

    size: int
    least_rows: int = 256

    @property
    def rows(self) -> int:
        """Number of rows."""
        return max(self.least_rows, (1 << 17) // self.size)

    @property
    def flops(self) -> float:
        """Nominal operations of all transforms."""
        return 2.5 * self.size * math.log2(self.size) * self.rows

    def measure(self) -> Readings:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        points, ours = over_channels(torch.randn(self.rows, self.size // 2))
        padded, out = torch.randn(self.rows, self.size), torch.empty(self.rows, self.size // 2 + 1, dtype=torch.cfloat)
        calls: dict[str, Callable[[], object]] = {
            "this library": ours,
            "torch.fft": partial(torch.fft.rfft, padded, out=out),
        }
        return {"points": points, **fastest_in_turn(calls, max(10, EFFORT // self.size))}


def over_channels(signals: Tensor) -> tuple[int, Callable[[], Tensor]]:
    """Return m, and a function that transforms rows (R, L) to (R / lanes, m, 2, lanes)."""
    import numpy as np

    from delayssm.backends.numba_convolution import transform_rows
    from delayssm.backends.numba_vectors import VECTOR_BYTES
    from delayssm.backends.ring import Ring

    lanes, length = VECTOR_BYTES // 4, signals.shape[1]
    ring = Ring.at_least(length)
    x = signals.view(-1, lanes, length).transpose(1, 2).flatten().numpy()
    work = torch.zeros(len(signals) // lanes, ring.size, 2, lanes)
    arguments = x, length, ring.size, ring.parts(np.float32), work.flatten(1).numpy()

    def transform() -> Tensor:
        transform_rows(*arguments)
        return work

    return ring.size, transform


@dataclass(frozen=True)
class TransformSpeed(Isolated[Transforms | Limits]):
    """Time and nominal speed of a transform by its size."""

    name = "transform-speed"
    title = "Speed of the Fourier transform over channels, on one thread"

    sizes: tuple[int, ...] = tuple(1 << power for power in range(6, 17))
    least_rows: int = 256
    limits: Limits = LIMITS

    def points(self) -> list[Transforms | Limits]:
        return [self.limits, *(Transforms(size, self.least_rows) for size in self.sizes)]

    def show(self, results: Mapping[Transforms | Limits, Readings]) -> Iterable[File]:
        names = "this library", "torch.fft"
        head = ["n", "m", "rows", *(f"{name}, ns per row" for name in names), "times faster"]
        head += [f"{name}, GFLOPS" for name in names]
        rows = []
        for point, values in of_kind(Transforms, results).items():
            smallest = values["points"] > point.size // 2
            rows.append([
                f"{point.size:,}",
                f"{values['points']:,.0f}" + (", the smallest there is" if smallest else ""),
                f"{point.rows:,}",
                *(f"{values[name] / point.rows * 1e9:,.0f}" for name in names),
                f"{values['torch.fft'] / values['this library']:.1f}",
                *(f"{point.flops / values[name] / 1e9:.0f}" for name in names),
            ])  # fmt: skip
        yield "table.md", tables.markdown(head, rows).encode()
        yield from show_limits(results)
