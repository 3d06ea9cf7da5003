"""Difference between the FFT pass and the recurrence of the same model: table `fft-scan-accuracy`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from delayssm.layers.block import Block
from delayssm.layers.layer import DS4D
from delayssm.layers.stack import Stack
from delayssm_lab.measure import by_length
from delayssm_lab.report import reported, tables
from delayssm_lab.study import File, Measured, Readings

#: Names of the comparisons in the journal, and in the table.
LABELS = {
    "ours": "our setting, our code",
    "bounded stream": "our setting, bounded stream",
    "paper's setting": "paper's setting, our code",
}


@dataclass(frozen=True)
class Comparison:
    """A model and an input."""

    length: int
    seed: int


@dataclass(frozen=True)
class FFTAccuracy(Measured[Comparison]):
    """Outputs of a stack for one random input, by FFT and by recurrence.

    The recurrence of "ours" and of the "paper's setting" is an endless stream in one chunk. The "bounded stream" is
    made for `length` tokens, and gets the first half of them in one chunk and the others one by one.
    """

    name = "fft-accuracy"
    title = "FFT against recurrence (table fft-scan-accuracy)"

    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    depth: int = 4
    d_model: int = 256
    d_state: int = 64

    def points(self) -> list[Comparison]:
        return [Comparison(length, seed) for length in self.lengths for seed in self.seeds]

    @torch.no_grad()
    def measure(self, point: Comparison, work: Path) -> Readings:
        stack = self._build(point, "exact")
        x = torch.randn(1, point.length, self.d_model)
        recurrent, _ = stack.stream(x, stack.init_state(1))
        parallel = stack(x)
        errors = {
            "ours": parallel - recurrent,
            "bounded stream": parallel - _bounded(stack, x),
            "paper's setting": self._build(point, "paper")(x) - recurrent,
        }
        scale = recurrent.double().square().mean().sqrt()
        values = {}
        for name, error in errors.items():
            values[f"relative RMSE, {name}"] = float(error.double().square().mean().sqrt() / scale)
            values[f"largest error, {name}"] = float(error.abs().max())
        return values

    def show(self, results: Mapping[Comparison, Readings]) -> Iterable[File]:
        seeds = {length: [results[p] for p in results if p.length == length] for length in self.lengths}
        head = ["", *(f"L {length}" for length in self.lengths)]
        rows = []
        for metric, report in _reports().items():
            for name, label in LABELS.items():
                cells = (
                    _mean_and_deviation([values[f"{metric}, {name}"] for values in seeds[n]]) for n in self.lengths
                )
                rows.append([f"{metric}, {label}", *cells])
            rows.append([f"{metric}, as the paper reports", *(_reported(report.get(n)) for n in self.lengths)])
        yield "table.md", tables.markdown(head, rows).encode()
        yield "errors.png", _figure(seeds)

    def _build(self, point: Comparison, contour: Literal["exact", "paper"]) -> Stack:
        torch.manual_seed(point.seed)
        layers = (DS4D(self.d_model, self.d_state, point.length, contour=contour) for _ in range(self.depth))
        return Stack(map(Block, layers)).eval()


def _bounded(stack: Stack, x: Tensor) -> Tensor:
    """Return the outputs of a stream made for L tokens, x (1, L, H) -> (1, L, H)."""
    length = x.shape[1]
    y, state = stack.stream(x[:, : length // 2], stack.init_state(1, max_length=length))
    decoder = stack.decoder(state)
    return torch.cat([y, *(decoder(x[:, t]).clone()[:, None] for t in range(length // 2, length))], dim=1)


def _mean_and_deviation(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2e}" if values else "–"
    return f"{statistics.fmean(values):.2e} ± {statistics.stdev(values):.0e}"


def _reports() -> dict[str, dict[int, tuple[float, float]]]:
    """Return the means and standard deviations that the paper reports, by metric and length."""
    return {"relative RMSE": reported.FFT_RELATIVE_RMSE, "largest error": reported.FFT_LARGEST_ERROR}


def _reported(value: tuple[float, float] | None) -> str:
    return "–" if value is None else f"{value[0]:.2e} ± {value[1]:.0e}"


def _figure(seeds: Mapping[int, list[Readings]]) -> bytes:
    content = {}
    for metric, report in _reports().items():
        means = {
            name: {n: statistics.fmean(v[f"{metric}, {name}"] for v in values) for n, values in seeds.items() if values}
            for name in LABELS
        }
        content[metric] = [
            by_length.Line("our setting", means["ours"], "#0072B2"),
            by_length.Line("the paper's setting, our code", means["paper's setting"], "#D55E00", "--", "s"),
            by_length.Line("the paper's report", {n: report[n][0] for n in seeds if n in report}, "black", ":", "^"),
        ]
    return by_length.figure(content, logarithmic=tuple(content))
