"""Speed and memory of decoding token by token, with embedding and head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from delayssm_lab.measure.decoding import Decoding, DifferentAges, SideBySide
from delayssm_lab.measure.measurement import OnDevice, of_kind
from delayssm_lab.measure.stacks import BASELINE, SAME_WIDTH, StackSize
from delayssm_lab.measure.streams import Memory, Model, state_bytes
from delayssm_lab.models.specs import GPT2Spec, MambaSpec
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

#: Batch size and length.
Shape = tuple[int, int]
Point = Decoding | DifferentAges | SideBySide

#: Line style and marker of each memory.
MARKERS: dict[Memory | None, tuple[str, str]] = {
    "bounded": ("-", "o"), "endless": ("--", "^"), "dense": (":", "s"), None: ("-.", "D"),
}  # fmt: skip
#: Sizes of the models themselves: heads of 64 channels, and Mamba's own state and convolution.
GPT2 = GPT2Spec(d_model=256, depth=4, heads=4)
MAMBA = MambaSpec(d_model=256, depth=4, d_state=16, conv_kernel=4)
#: Where the only window begins.
PROMPT = 16
LENGTHS = (1024, 2048, 4096, 8192)
HEAD = [
    "batch", "T", "model", "measured", "microseconds/token", "median", "99 %", "largest", "microseconds/token/stream",
    "MB/stream", "MB shared", "MB of both", "/ keys and values", "time / S4D endless", "time / Mamba", "time / GPT-2",
]  # fmt: skip


@dataclass(frozen=True)
class DecodingSpeed(OnDevice[Point]):
    """Streams of S4D and DS4D beside GPT-2 and Mamba of the `transformers` library, of the same width and depth.

    Bounded streams are measured from their first token to their last, because some of their tokens do the work of many.
    Otherwise, long streams of several rows are measured in windows. The cost of Mamba depends on nothing but the batch.
    """

    quantity = "decoding-speed"
    subject = "Speed and memory of decoding (figure efficiency)"

    shapes: tuple[Shape, ...] = (
        *((1, length) for length in (*LENGTHS, 65_536)),
        *((batch_size, length) for batch_size in (8, 64) for length in LENGTHS),
    )
    window: int = 256
    whole: int = 2048  # streams of at most so many tokens are measured as a whole
    largest_state: float = 6e9  # bytes of all streams; what takes more is left out
    dense: Shape = (1, 1024)
    ages: Shape = (64, 2048)
    ages_spacing: int = 16
    side_by_side: int = 2048
    s4d: StackSize = BASELINE
    ds4d: StackSize = SAME_WIDTH
    gpt2: GPT2Spec = GPT2
    mamba: MambaSpec = MAMBA

    def points(self) -> list[Point]:
        points: list[Point] = []
        for shape in self.shapes:
            for model, memory in self._models(shape):
                if state_bytes(model, memory, *shape) <= self.largest_state:
                    starts = self._starts(model, memory, *shape)
                    window = None if starts is None else self.window
                    points.append(Decoding(model, memory, *shape, starts or (0,), window, self.device))
            if shape == self.ages:
                points.append(DifferentAges(self.ds4d, *shape, self.ages_spacing, self.device))
        if self.device == "cpu":
            points += [SideBySide(self.ds4d, self.side_by_side, threads) for threads in (None, 1)]
        return points

    def _models(self, shape: Shape) -> list[tuple[Model, Memory | None]]:
        models: list[tuple[Model, Memory | None]] = [
            (self.s4d, "endless"), (self.s4d, "bounded"), (self.ds4d, "bounded"), (self.ds4d, "endless"),
        ]  # fmt: skip
        if shape == self.dense:
            models.append((self.ds4d, "dense"))
        models.append((self.gpt2, None))
        if shape == next(other for other in self.shapes if other[0] == shape[0]):
            models.append((self.mamba, None))
        return models

    def _starts(self, model: Model, memory: Memory | None, batch_size: int, length: int) -> tuple[int, ...] | None:
        """Return where windows begin, or None to measure the whole stream."""
        if isinstance(model, StackSize) and (batch_size == 1 or length <= self.whole or memory == "bounded"):
            return None
        if isinstance(model, MambaSpec) or (isinstance(model, StackSize) and model.family == "S4D"):
            return (PROMPT,)  # all tokens cost the same
        return 0, *(length * i // 4 - self.window // 2 for i in (1, 2, 3)), length - self.window

    def show(self, results: Mapping[Point, Readings]) -> Iterable[File]:
        decoded = of_kind(Decoding, results)
        rows = []
        for point, values in results.items():
            bases = [None] * 3 if isinstance(point, SideBySide) else self._bases(point, decoded)
            together = values["stream bytes"] + values["shared bytes"]
            keys_and_values = state_bytes(self.gpt2, None, 1, point.length)
            rows.append([
                " + ".join([str(point.batch_size)] * point.threads),
                "any" if point.model == self.mamba else f"{point.length:,}",
                point.label,
                point.extent(values),
                *(f"{values[name] * 1e6:,.0f}" for name in ("mean", "median", "99th percentile", "largest")),
                f"{values['mean'] / point.batch_size / point.threads * 1e6:,.1f}",
                *map(_megabytes, (values["stream bytes"], values["shared bytes"], together)),
                "" if point.model == self.mamba else f"{together / keys_and_values:.2g}",
                *("" if base is None else f"{values['mean'] / base:.2f}" for base in bases),
            ])  # fmt: skip
        yield "table.md", tables.markdown(HEAD, rows).encode()
        yield "decoding.png", self._figure(decoded)

    def _bases(self, point: Point, decoded: Mapping[Decoding, Readings]) -> list[float | None]:
        """Return the mean times that a point is compared with: of S4D, Mamba and GPT-2 with as many rows and tokens."""
        means = {
            (other.model, other.model == self.mamba or other.length): values["mean"]
            for other, values in decoded.items()
            if other.batch_size == point.batch_size and other.memory in ("endless", None)
        }
        s4d, mamba = means.get((self.s4d, point.length)), means.get((self.mamba, True))
        return [s4d, mamba, None if point.model == self.mamba else means.get((self.gpt2, point.length))]

    def _figure(self, decoded: Mapping[Decoding, Readings]) -> bytes:
        """Draw the times of the smallest and the largest batch size, and the memory of one stream, by length."""
        from delayssm_lab.measure import by_length  # not loaded where memory is measured
        from delayssm_lab.report.drawing import STYLES

        one, many = (choose(batch_size for batch_size, _ in self.shapes) for choose in (min, max))
        panels: dict[str, list[by_length.Line]] = {}
        for title, batch_size, names, unit in (
            (f"microseconds per token, batch {one}", one, ["mean"], 1e-6),
            (f"microseconds per token, batch {many}", many, ["mean"], 1e-6),
            ("memory of one stream, MB", one, ["stream bytes", "shared bytes"], 1e6),
        ):
            every_length = [length for other, length in self.shapes if other == batch_size]
            lines: dict[str, tuple[Decoding, dict[int, float]]] = {}
            for point, values in decoded.items():
                if point.batch_size == batch_size:
                    value = sum(values[name] for name in names) / unit
                    lengths = every_length if point.model == self.mamba else [point.length]
                    lines.setdefault(point.label, (point, {}))[1].update(dict.fromkeys(lengths, value))
            panels[title] = [
                by_length.Line(label, numbers, STYLES[point.model.family][0], *MARKERS[point.memory])
                for label, (point, numbers) in lines.items()
            ]
        return by_length.figure(panels, logarithmic=tuple(panels))


def _megabytes(count: float) -> str:
    return f"{count / 1e6:.3g}" if count < 1e9 else f"{count / 1e6:,.0f}"
