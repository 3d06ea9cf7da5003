"""Speed and memory of training and decoding, DS4D beside S4D: figure `efficiency`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

from delayssm_lab.environment import Device, require_device
from delayssm_lab.measure import fresh
from delayssm_lab.measure.speed import Decoding, Memory, Point, Sizes, Training
from delayssm_lab.report import tables
from delayssm_lab.report.drawing import legend, panels, png
from delayssm_lab.studies.study import File, Found, Measured

TRAINING, DECODING = "training, tokens/s", "decoding, tokens/s"
PEAK, STATE = "training, peak GB", "decoding, MB of state per layer"
RATIOS = TRAINING, DECODING
S4D, DS4D, MATCHED = Sizes(delayed=False), Sizes(), Sizes(d_model=241)
#: Numbers by length, by model, by metric.
Lines = dict[str, dict[str, dict[int, float]]]


@dataclass(frozen=True)
class Efficiency(Measured[Point]):
    """Four layers, N 64: S4D with H 256, DS4D with the same H and with the paper's H of as many parameters, 241."""

    name = "efficiency"
    title = "Speed and memory of training and decoding (figure efficiency)"

    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192)
    batch_size: int = 32
    rounds: int = 2
    tokens: int = 288
    s4d: Sizes = S4D
    ds4d: Sizes = DS4D
    matched: Sizes = MATCHED
    device: Device = "cpu"

    def points(self) -> list[Point]:
        models = self.s4d, self.ds4d, self.matched  # in turns, so that ratios are of one moment
        where = list(product(range(self.rounds), self.lengths, models))
        training = [Training(model, length, self.batch_size, turn, self.device) for turn, length, model in where]
        history = max(self.lengths)
        decoding = [
            Decoding(model, length, history, memory, self.tokens, turn, self.device)
            for turn, length, model in where
            for memory in _memories(model)
        ]
        return [*training, *decoding]

    def measure(self, point: Point, work: Path) -> Found:
        return fresh.call("delayssm_lab.measure.speed", json.dumps(asdict(point)))

    def show(self, found: Mapping[Point, Found]) -> Iterable[File]:
        lines = self._lines(found)
        head = ["", "model", *(f"L {length}" for length in self.lengths)]
        rows = [
            [metric, label, *(_number(values.get(length)) for length in self.lengths)]
            for metric, models in lines.items()
            for label, values in models.items()
        ]
        yield "table.md", tables.markdown(head, rows).encode()
        yield "efficiency.png", self._figure(lines)

    def _lines(self, found: Mapping[Point, Found]) -> Lines:
        """The best of all rounds."""
        lines: Lines = {}
        for point, values in found.items():
            numbers = _numbers(point, values)
            for metric, number in numbers.items():
                by_length = lines.setdefault(metric, {}).setdefault(self._label(point), {})
                by_length[point.length] = max(number, by_length.get(point.length, number))
        return {**lines, **{f"{metric} / S4D": self._ratios(lines[metric]) for metric in RATIOS if metric in lines}}

    def _ratios(self, models: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
        base = models.get(f"S4D, H {self.s4d.d_model}", {})
        return {
            label: {length: value / base[length] for length, value in values.items() if length in base}
            for label, values in models.items()
            if values is not base
        }

    def _label(self, point: Point) -> str:
        name = f"{'DS4D' if point.sizes.delayed else 'S4D'}, H {point.sizes.d_model}"
        return f"{name}, {point.memory}" if isinstance(point, Decoding) and point.sizes.delayed else name

    def _figure(self, lines: Lines) -> bytes:
        shown = {metric: models for metric, models in lines.items() if metric != "batch"}
        figure, axes = panels(len(shown), width=4.6, height=3.3)
        for axis, (metric, models) in zip(axes, shown.items(), strict=True):
            for label, values in models.items():
                color, style, marker = self._style(label)
                axis.plot(list(values), list(values.values()), color=color, linestyle=style, marker=marker,
                          markersize=5, label=label)  # fmt: skip
            axis.set_title(metric)
            axis.set_xscale("log", base=2)
            axis.set_xticks(self.lengths, [str(n) for n in self.lengths])
            axis.minorticks_off()
            axis.set_xlabel("sequence length")
            axis.grid(alpha=0.25, linewidth=0.5)
            if metric in (DECODING, STATE):
                axis.set_yscale("log")
            else:
                axis.set_ylim(0, 1.1 * max((max(values.values()) for values in models.values() if values), default=1))
            if metric.endswith("/ S4D"):
                axis.axhline(1, color="black", linewidth=0.8)
        legend(figure, axes, columns=4)
        return png(figure)

    def _style(self, label: str) -> tuple[str, str, str]:
        """Colour by model, line and marker by memory."""
        model, memory = label.split(", ")[0], label.split(", ")[-1]
        color = "#D55E00" if model == "S4D" else "#0072B2" if f"H {self.ds4d.d_model}" in label else "#009E73"
        line, marker = {"dense": (":", "s"), "ring": ("--", "^")}.get(memory, ("-", "o"))
        return color, line, marker


@dataclass(frozen=True)
class EfficiencyOnGPU(Efficiency):
    """The same on a CUDA device."""

    name = "efficiency-cuda"
    title = "The same on a GPU, as the paper has it"
    request = "\nThis project has not seen a GPU yet. Please open an issue with the table.md and about.json from there."

    device: Device = "cuda"

    def run(self, work: Path) -> None:
        require_device(self.device)
        super().run(work)


def _memories(sizes: Sizes) -> tuple[Memory, ...]:
    return ("chosen", "ring", "dense") if sizes.delayed else ("chosen",)


def _numbers(point: Point, found: Found) -> Found:
    if isinstance(point, Training):
        return {"batch": found["batch"], TRAINING: found["tokens/s"], PEAK: found["peak bytes"] / 1e9}
    return {DECODING: found["tokens/s"], STATE: found["state bytes"] / point.sizes.depth / 1e6}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
