"""The FFT pass against the recurrence of the same model: table `fft-scan-accuracy`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from delayssm.layers.block import Block
from delayssm.layers.layer import DS4D
from delayssm.layers.ssm import DelaySSM
from delayssm.layers.stack import Stack
from delayssm.system.kernel import EXACT, PAPER, Contour
from delayssm_lab.report import tables
from delayssm_lab.report.drawing import legend, panels, png
from delayssm_lab.studies import paper
from delayssm_lab.studies.study import File, Found, Measured


@dataclass(frozen=True)
class Point:
    """One model and one input."""

    length: int
    seed: int


@dataclass(frozen=True)
class FFTAccuracy(Measured[Point]):
    """Outputs of a stack on one random input, once by FFT and once token by token."""

    name = "fft-accuracy"
    title = "FFT against recurrence (table fft-scan-accuracy)"

    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    depth: int = 4
    d_model: int = 256
    d_state: int = 64

    def points(self) -> list[Point]:
        return [Point(length, seed) for length in self.lengths for seed in self.seeds]

    @torch.no_grad()
    def measure(self, point: Point, work: Path) -> Found:
        torch.manual_seed(point.seed)
        stack = Stack(Block(DS4D(self.d_model, self.d_state, point.length)) for _ in range(self.depth)).eval()
        x = torch.randn(1, point.length, self.d_model)
        recurrent, _ = stack.stream(x, stack.init_state(1))
        scale = recurrent.double().square().mean().sqrt()
        found = {}
        for name, contour in (("ours", EXACT), ("paper's setting", PAPER)):
            error = (_with(stack, contour)(x) - recurrent).double()
            found[f"relative RMSE, {name}"] = float(error.square().mean().sqrt() / scale)
            found[f"largest error, {name}"] = float(error.abs().max())
        return found

    def show(self, found: Mapping[Point, Found]) -> Iterable[File]:
        by_length = {length: [found[p] for p in found if p.length == length] for length in self.lengths}
        head = ["", *(f"L {length}" for length in self.lengths)]
        rows = []
        for metric, theirs in _reports().items():
            for name in ("ours", "paper's setting"):
                label = f"{metric}, {'our setting' if name == 'ours' else name}, our code"
                rows.append([label, *(_words([f[f"{metric}, {name}"] for f in by_length[n]]) for n in self.lengths)])
            rows.append([f"{metric}, as the paper reports", *(_reported(theirs.get(n)) for n in self.lengths)])
        yield "table.md", tables.markdown(head, rows).encode()
        yield "errors.png", _figure(by_length)


def _with(stack: Stack, contour: Contour) -> Stack:
    for module in stack.modules():
        if isinstance(module, DelaySSM):
            module.contour = contour
    return stack


def _words(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.2e}" if values else "–"
    return f"{statistics.fmean(values):.2e} ± {statistics.stdev(values):.0e}"


def _reports() -> dict[str, dict[int, tuple[float, float]]]:
    """What the paper reports, by metric."""
    return {"relative RMSE": paper.FFT_RELATIVE_RMSE, "largest error": paper.FFT_LARGEST_ERROR}


def _reported(value: tuple[float, float] | None) -> str:
    return "–" if value is None else f"{value[0]:.2e} ± {value[1]:.0e}"


def _figure(by_length: Mapping[int, list[Found]]) -> bytes:
    figure, axes = panels(2, width=4.6, height=3.4)
    series = [
        ("ours", "our setting", "#0072B2", "o", "-"),
        ("paper's setting", "the paper's setting, our code", "#D55E00", "s", "--"),
    ]
    for axis, (metric, reported) in zip(axes, _reports().items(), strict=True):
        for key, label, color, marker, style in series:
            means = {
                n: statistics.fmean(f[f"{metric}, {key}"] for f in values) for n, values in by_length.items() if values
            }
            axis.plot(list(means), list(means.values()), color=color, marker=marker, linestyle=style, label=label)
        shown = {n: reported[n][0] for n in by_length if n in reported}
        axis.plot(
            list(shown), list(shown.values()), color="black", marker="^", linestyle=":", label="the paper's report"
        )
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(list(by_length), [str(n) for n in by_length])
        axis.minorticks_off()
        axis.set_xlabel("sequence length")
        axis.set_ylabel(metric)
        axis.grid(alpha=0.25, linewidth=0.5)
    legend(figure, axes)
    return png(figure)
