"""Error of convolution kernels against the impulse response of the recurrence in float64."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from delayssm import DelaySSM
from delayssm.system import reference
from delayssm_lab.measure.errors import relative_rms
from delayssm_lab.report import tables
from delayssm_lab.study import File, Measured, Places, Readings

#: How kernels are computed, for the columns of the table.
COLUMNS = ("float64", "cast to float32", "float32 contour", "paper's contour")


@dataclass(frozen=True)
class Initialisation:
    """Spectrum and branch fraction of a module at its start."""

    init: Literal["lin", "inv"]
    branch_fraction: float


@dataclass(frozen=True)
class KernelAccuracy(Measured[Initialisation]):
    """Relative RMS error over all channels, the worst of all initialisations at each length."""

    name = "kernel-accuracy"
    title = "Kernel against the recurrence in float64"

    lengths: tuple[int, ...] = (1, 2, 17, 1024, 4096, 16_384)
    delays: tuple[float, ...] = (1.0, 19_999.0, 2.5, 16.999, 700.25, 9000.5)
    max_delay: int = 20_000
    d_state: int = 64

    def points(self) -> list[Initialisation]:
        spectra: tuple[Literal["lin", "inv"], ...] = ("lin", "inv")
        return [Initialisation(*pair) for pair in product(spectra, (0.015, 0.1, 0.5, 0.9))]

    @torch.no_grad()
    def measure(self, point: Initialisation, places: Places) -> Readings:
        modules = (
            self._build(point, "exact").double(),
            self._build(point, "exact"),
            self._build(point, "float32"),
            self._build(point, "paper"),
        )
        truth = _impulse_response(modules[1], max(self.lengths), self.max_delay)
        return {
            _key(column, length): relative_rms(module.kernel(length), truth[:, :length])
            for column, module in zip(COLUMNS, modules, strict=True)
            for length in self.lengths
        }

    def show(self, results: Mapping[Initialisation, Readings]) -> Iterable[File]:
        rows = [
            [f"{n:,}", *(f"{max(values[_key(name, n)] for values in results.values()):.1e}" for name in COLUMNS)]
            for n in self.lengths
        ]
        yield "table.md", tables.markdown(["length", *COLUMNS], rows).encode()

    def _build(self, point: Initialisation, contour: Literal["exact", "float32", "paper"]) -> DelaySSM:
        torch.manual_seed(0)
        return DelaySSM(
            len(self.delays),
            self.d_state,
            self.max_delay,
            init=point.init,
            branch_fraction=point.branch_fraction,
            delays=self.delays,
            dt_min=1e-4,
            contour=contour,
        )


def _key(column: str, length: int) -> str:
    return f"{column}, L {length}"


def _impulse_response(ssm: DelaySSM, length: int, max_delay: int) -> Tensor:
    system = ssm.discretize()
    rows = zip(*(tensor.numpy() for tensor in system), strict=True)
    return torch.from_numpy(np.stack([reference.kernel(reference.Channel(*row), length, max_delay) for row in rows]))
