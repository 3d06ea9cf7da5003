"""Speed and memory of the convolution kernel of DS4D, forward and backward, by three implementations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch

from delayssm import DelaySSM, backend
from delayssm_lab.environment import peak_memory
from delayssm_lab.measure import textbook
from delayssm_lab.measure.measurement import Isolated
from delayssm_lab.measure.resources import fastest
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

Implementation = Literal["textbook", "eager", "numba"]
LABELS: dict[Implementation, str] = {
    "textbook": "textbook: eager complex64, grid 2L",
    "eager": "eager backend: complex128, grid 9/8 L",
    "numba": "numba backend: float64, grid 9/8 L",
}


@dataclass(frozen=True)
class KernelPass:
    """From the parameters of a module to its kernel, and from a gradient of the kernel to theirs."""

    implementation: Implementation
    d_model: int = 256
    d_state: int = 64
    length: int = 1024

    def measure(self) -> Readings:
        torch.manual_seed(0)
        if self.implementation != "textbook":
            backend(self.implementation)
        self._pass(2, 4, 16)()  # load and compile everything before memory is counted
        forward_backward = self._pass(self.d_model, self.d_state, self.length)
        before = peak_memory()
        time = fastest(forward_backward, 20 if self.implementation == "numba" else 6)
        return {"seconds": time, "added bytes": peak_memory() - before}

    def _pass(self, d_model: int, d_state: int, length: int) -> Callable[[], None]:
        ssm, grad = DelaySSM(d_model, d_state, length), torch.randn(d_model, length)

        def forward_backward() -> None:
            K = textbook.kernel(ssm, length) if self.implementation == "textbook" else ssm.kernel(length)
            torch.autograd.backward(K, grad)

        return forward_backward


@dataclass(frozen=True)
class KernelSpeed(Isolated[KernelPass]):
    """The fastest of several passes of each implementation, H 256, N 64, L 1024."""

    name = "kernel-speed"
    title = "Speed and memory of the kernel, forward and backward"

    d_model: int = 256
    d_state: int = 64
    length: int = 1024

    def points(self) -> list[KernelPass]:
        return [KernelPass(name, self.d_model, self.d_state, self.length) for name in get_args(Implementation)]

    def show(self, results: Mapping[KernelPass, Readings]) -> Iterable[File]:
        base = next((values for point, values in results.items() if point.implementation == "textbook"), None)
        rows = [
            [
                LABELS[point.implementation],
                f"{values['seconds'] * 1e3:.1f}",
                "" if base is None else f"{base['seconds'] / values['seconds']:.1f}",
                f"{values['added bytes'] / 1e6:.0f}",
            ]
            for point, values in results.items()
        ]
        yield "table.md", tables.markdown(["implementation", "ms", "times faster", "memory added, MB"], rows).encode()
