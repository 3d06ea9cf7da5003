"""Error of convolutions in float32 against float64, beside that of torch.fft."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from delayssm_lab.measure.errors import relative_rms
from delayssm_lab.report import tables
from delayssm_lab.study import File, Measured, Places, Readings

RESULTS = "outputs", "gradients of inputs", "gradients of kernels"
IMPLEMENTATIONS = "this library", "torch.fft"


@dataclass(frozen=True)
class RandomSignals:
    """Signals and kernels of normally distributed numbers."""

    length: int


@dataclass(frozen=True)
class ConvolutionAccuracy(Measured[RandomSignals]):
    """Relative RMS error of outputs and gradients by length, batch 2, H 16."""

    name = "convolution-accuracy"
    title = "Convolution in float32 against float64"

    lengths: tuple[int, ...] = tuple(1024 << i for i in range(7))
    batch_size: int = 2
    d_model: int = 16

    def points(self) -> list[RandomSignals]:
        return [RandomSignals(length) for length in self.lengths]

    def measure(self, point: RandomSignals, places: Places) -> Readings:
        from delayssm.backends import eager, numba_cpu

        torch.manual_seed(0)
        x, grad = torch.randn(2, self.batch_size, point.length, self.d_model)
        kernel = torch.randn(1, point.length, self.d_model)
        signals = x.double(), kernel.double()
        truths = eager.convolve(*signals), *eager.convolve_backward(grad.double(), *signals)
        values = {}
        for name, implementation in zip(IMPLEMENTATIONS, (numba_cpu, eager), strict=True):
            results = implementation.convolve(x, kernel), *implementation.convolve_backward(grad, x, kernel)
            for what, result, truth in zip(RESULTS, results, truths, strict=True):
                values[f"{what}, {name}"] = relative_rms(result, truth)
        return values

    def show(self, results: Mapping[RandomSignals, Readings]) -> Iterable[File]:
        columns = [f"{what}, {name}" for what in RESULTS for name in IMPLEMENTATIONS]
        rows = [
            [f"{point.length:,}", *(f"{values[column]:.1e}" for column in columns)] for point, values in results.items()
        ]
        yield "table.md", tables.markdown(["length", *columns], rows).encode()
