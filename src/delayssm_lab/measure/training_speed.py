"""Speed and memory of training: DS4D beside S4D, a textbook DS4D, and the dense products of its layers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product

from delayssm_lab.measure import training_breakdown
from delayssm_lab.measure.limits import LIMITS, Limits, show_limits
from delayssm_lab.measure.measurement import OnDevice, of_kind
from delayssm_lab.measure.stacks import BASELINE, SAME_PARAMETERS, SAME_WIDTH, StackSize
from delayssm_lab.measure.training_breakdown import Breakdown
from delayssm_lab.measure.training_step import Code, TrainingStep
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

#: Batch size and length.
Shape = tuple[int, int]
Point = TrainingStep | Breakdown | Limits


@dataclass(frozen=True)
class TrainingSpeed(OnDevice[Point]):
    """Training steps of four blocks, N 64, by batch size and length.

    S4D has H 256. DS4D has the same H, and the H of about as many parameters.
    """

    quantity = "training-speed"
    subject = "Speed and memory of training (figure efficiency)"

    shapes: tuple[Shape, ...] = ((8, 1024), (8, 4096), (32, 1024), (32, 2048), (32, 4096), (32, 8192), (2, 16_384))
    textbook_shapes: tuple[Shape, ...] = ((8, 1024), (8, 4096))
    bfloat16_shapes: tuple[Shape, ...] = ((8, 1024), (32, 1024))  # minutes per step where a CPU only emulates it
    breakdown_shapes: tuple[Shape, ...] = ((8, 1024), (32, 1024))
    rounds: int = 2
    s4d: StackSize = BASELINE
    ds4d: StackSize = SAME_WIDTH
    matched: StackSize = SAME_PARAMETERS
    limits: Limits = LIMITS

    def points(self) -> list[Point]:
        points: list[Point] = [replace(self.limits, device=self.device)]
        for turn, shape in product(range(self.rounds), self.shapes):  # a ratio is of measurements in close succession
            models: list[tuple[StackSize, Code]] = [(self.ds4d, "dense products")]
            models += [(stack, "library") for stack in (self.s4d, self.ds4d, self.matched)]
            if shape in self.bfloat16_shapes:
                models += [(self.ds4d, "bfloat16 products")]
            if shape in self.textbook_shapes and turn == 0:
                models += [(self.ds4d, "textbook"), (self.ds4d, "textbook, memory kept")]
            points += [TrainingStep(stack, code, *shape, turn, self.device) for stack, code in models]
        if self.device == "cpu":
            points += [Breakdown(TrainingStep(self.ds4d, "library", *shape)) for shape in self.breakdown_shapes]
        return points

    def show(self, results: Mapping[Point, Readings]) -> Iterable[File]:
        fastest = self._fastest(of_kind(TrainingStep, results))
        head = ["batch x length", "model", "ms/step", "tokens/s", "time / products", "time / S4D", "peak GB", "error"]
        rows = []
        for (shape, label), values in fastest.items():
            batch_size, length = shape
            fewer = "" if values["rows"] == batch_size else f" ({values['rows']:.0f} rows fit)"
            ratios = (fastest.get((shape, base)) for base in (self._products, self.s4d.label))
            rows.append([
                f"{batch_size} x {length:,}{fewer}",
                label,
                f"{values['seconds'] * 1e3:,.0f}",
                f"{_speed(length, values):,.0f}",
                *("" if base is None else f"{_speed(length, base) / _speed(length, values):.2f}" for base in ratios),
                f"{values['peak bytes'] / 1e9:.1f}",
                f"{values['error']:.1e}" if "error" in values else "",
            ])  # fmt: skip
        yield "table.md", tables.markdown(head, rows).encode()
        yield "summary.md", self._summary(fastest)
        yield "training.png", self._figure(fastest)
        yield from show_limits(results)
        if breakdowns := of_kind(Breakdown, results):
            yield "breakdown.md", training_breakdown.table(breakdowns).encode()

    def _summary(self, fastest: Mapping[tuple[Shape, str], Readings]) -> bytes:
        """Return a table of tokens per second, one row for each model and one column for each shape."""
        head = ["model", *(f"{batch_size} x {length:,}" for batch_size, length in self.shapes)]
        rows = []
        for label in dict.fromkeys(label for _, label in fastest):
            speeds = {shape: _speed(shape[1], values) for (shape, other), values in fastest.items() if other == label}
            rows.append([label, *(f"{speeds[shape]:,.0f}" if shape in speeds else "" for shape in self.shapes)])
        return tables.markdown(head, rows).encode()

    @property
    def _products(self) -> str:
        return TrainingStep(self.ds4d, "dense products", 1, 1).label

    def _fastest(self, results: Mapping[TrainingStep, Readings]) -> dict[tuple[Shape, str], Readings]:
        """Return the fastest round of each shape and model, shape by shape."""
        rounds: dict[tuple[Shape, str], list[Readings]] = {}
        for shape in self.shapes:
            for point, values in results.items():
                if (point.batch_size, point.length) == shape:
                    rounds.setdefault((shape, point.label), []).append(values)
        return {key: min(values, key=lambda v: v["seconds"] / v["rows"]) for key, values in rounds.items()}

    def _figure(self, fastest: Mapping[tuple[Shape, str], Readings]) -> bytes:
        """Draw the largest batch size by length."""
        from delayssm_lab.measure import by_length  # not loaded where memory is measured

        largest = max(batch_size for batch_size, _ in self.shapes)
        models = {
            stack.label: {
                length: values
                for ((batch_size, length), label), values in fastest.items()
                if batch_size == largest and label == stack.label
            }
            for stack in (self.s4d, self.ds4d, self.matched)
        }
        base = models[self.s4d.label]
        speeds = {label: {n: _speed(n, values) for n, values in model.items()} for label, model in models.items()}
        content = {
            "training, tokens/s": speeds,
            "training, speed / S4D": {
                label: {n: speed / _speed(n, base[n]) for n, speed in model.items() if n in base}
                for label, model in speeds.items()
            },
            "training, peak GB": {
                label: {n: values["peak bytes"] / 1e9 for n, values in model.items()}
                for label, model in models.items()
            },
        }  # fmt: skip
        return by_length.figure({
            title: [
                by_length.Line(label, values, by_length.COLORS.get(label, by_length.OTHER))
                for label, values in lines.items()
            ]
            for title, lines in content.items()
        })  # fmt: skip


def _speed(length: int, values: Readings) -> float:
    """Return tokens per second."""
    return values["rows"] * length / values["seconds"]
