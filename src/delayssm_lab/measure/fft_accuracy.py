"""Difference between the FFT pass and the recurrence of the same model: table `fft-scan-accuracy`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from delayssm.layers.block import Block
from delayssm.layers.layer import DS4D
from delayssm.layers.stack import Stack
from delayssm_lab.measure import by_length
from delayssm_lab.report import reported, tables
from delayssm_lab.study import File, Measured, Places, Readings

#: Names of the comparisons in the journal, and in the table.
LABELS = {
    "ours": "our setting, our code",
    "bounded stream": "our setting, bounded stream",
    "paper's setting": "paper's setting, our code",
}


@dataclass(frozen=True)
class Comparison:
    """A model of some width, and an input."""

    length: int
    seed: int
    d_model: int


@dataclass(frozen=True)
class FFTAccuracy(Measured[Comparison]):
    """Outputs of a stack for one random input, by FFT and by recurrence.

    The recurrence of "ours" and of the "paper's setting" is an endless stream in one chunk. The "bounded stream" is
    made for `length` tokens, and gets them as a prompt, in chunks, and one by one.
    """

    name = "fft-accuracy"
    title = "FFT against recurrence (table fft-scan-accuracy)"

    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    #: Length and width of what is measured with one seed. At H 256, the rings of the longest would take 9 GB.
    longer: tuple[tuple[int, int], ...] = ((16_384, 256), (65_536, 64))
    depth: int = 4
    d_model: int = 256
    d_state: int = 64

    def points(self) -> list[Comparison]:
        points = [Comparison(length, seed, self.d_model) for length in self.lengths for seed in self.seeds]
        return points + [Comparison(length, self.seeds[0], width) for length, width in self.longer]

    @torch.no_grad()
    def measure(self, point: Comparison, places: Places) -> Readings:
        stack = self._build(point, "exact")
        x = torch.randn(1, point.length, point.d_model)
        recurrent, _ = stack.stream(x, stack.init_state(1))
        parallel = stack(x)
        errors = {"ours": parallel - recurrent, "bounded stream": parallel - _bounded(stack, x)}
        if point.length in self.lengths:  # its kernels are computed in plain torch, which takes much memory
            errors["paper's setting"] = self._build(point, "paper")(x) - recurrent
        scale = recurrent.double().square().mean().sqrt()
        values = {}
        for name, error in errors.items():
            values[f"relative RMSE, {name}"] = float(error.double().square().mean().sqrt() / scale)
            values[f"largest error, {name}"] = float(error.abs().max())
        return values

    def show(self, results: Mapping[Comparison, Readings]) -> Iterable[File]:
        seeds: dict[tuple[int, int], list[Readings]] = {(length, self.d_model): [] for length in self.lengths}
        for point, values in results.items():
            seeds.setdefault((point.length, point.d_model), []).append(values)
        head = ["error", *(f"L {n}" + ("" if width == self.d_model else f", H {width}") for n, width in seeds)]
        rows = []
        for metric, report in _reports().items():
            for name, label in LABELS.items():
                key = f"{metric}, {name}"
                cells = (_mean_and_deviation([v[key] for v in values if key in v]) for values in seeds.values())
                rows.append([f"{metric}, {label}", *cells])
            rows.append([f"{metric}, as the paper reports", *(_reported(report.get(n)) for n, _ in seeds)])
        yield "table.md", tables.markdown(head, rows).encode()
        yield "errors.png", _figure({n: values for (n, _), values in seeds.items() if n in self.lengths})

    def _build(self, point: Comparison, contour: Literal["exact", "paper"]) -> Stack:
        torch.manual_seed(point.seed)
        layers = (DS4D(point.d_model, self.d_state, point.length, contour=contour) for _ in range(self.depth))
        return Stack(map(Block, layers)).eval()


def _bounded(stack: Stack, x: Tensor) -> Tensor:
    """Return the outputs of a stream made for L tokens, x (1, L, H) -> (1, L, H).

    The first quarter is a prompt. The second comes in chunks of 100 tokens, the third one by one, and the last in
    chunks of 1,000. The token that completes the first half is one of those that come one by one.
    """
    length = x.shape[1]
    quarter, half = length // 4, length // 2
    chunks = (half - 1 - quarter) // 100
    y, state = stack.stream(x[:, :quarter], stack.init_state(1, max_length=length))
    outputs = [y]
    for t in range(quarter, quarter + 100 * chunks, 100):
        y, state = stack.stream(x[:, t : t + 100], state)
        outputs.append(y)
    decoder = stack.decoder(state)
    outputs += [decoder(x[:, t]).clone()[:, None] for t in range(quarter + 100 * chunks, half + quarter)]
    state = decoder.state
    for t in range(half + quarter, length, 1000):
        y, state = stack.stream(x[:, t : t + 1000], state)
        outputs.append(y)
    return torch.cat(outputs, dim=1)


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
            by_length.Line("our setting, bounded stream", means["bounded stream"], "#009E73", "--", "D"),
            by_length.Line("the paper's setting, our code", means["paper's setting"], "#D55E00", "--", "s"),
            by_length.Line("the paper's report", {n: report[n][0] for n in seeds if n in report}, "black", ":", "^"),
        ]
    return by_length.figure(content, logarithmic=tuple(content))
