"""Speed and memory of decoding token by token, with embedding and head."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from delayssm import TokenModel
from delayssm_lab.environment import Device
from delayssm_lab.measure.dense import DenseStep
from delayssm_lab.measure.measurement import OnDevice
from delayssm_lab.measure.resources import seconds
from delayssm_lab.measure.stacks import BASELINE, SAME_PARAMETERS, SAME_WIDTH, StackSize
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

VOCABULARY = 100
#: First tokens whose times are not counted.
WARM_UP = 20
StreamMemory = Literal["bounded", "endless", "dense"]
Model = tuple[StackSize, StreamMemory]


@dataclass(frozen=True)
class DecodedStream:
    """The last `tokens` tokens of streams of `length`, in a model whose delays reach up to `length`.

    "bounded" is `init_state(batch_size, max_length=length)`, "endless" is `init_state(batch_size)`, and "dense" is the
    paper's buffer of all states. Rounds are repetitions at different times.
    """

    stack: StackSize
    memory: StreamMemory
    batch_size: int
    length: int
    tokens: int
    round: int = 0
    device: Device = "cpu"

    @property
    def label(self) -> str:
        """Model and memory, for tables; S4D has no delayed states to remember."""
        return f"{self.stack.label}, {self.memory}" if self.stack.family == "DS4D" else self.stack.label

    @torch.no_grad()
    def measure(self) -> Readings:
        model = TokenModel(VOCABULARY, self.stack.build(self.length)).to(self.device).eval()
        tokens = torch.randint(0, VOCABULARY, (self.length, self.batch_size), device=self.device)
        step, state_bytes = self._start(model, tokens[: self.length - self.tokens])
        times = [seconds(partial(step, token), self.device) for token in tokens[-self.tokens :]]
        measured = torch.tensor(times[min(WARM_UP, self.tokens // 10) :], dtype=torch.float64)
        eighth = max(1, len(measured) // 8)
        return {
            "mean": float(measured.mean()),
            "median": float(measured.median()),
            "99th percentile": float(measured.quantile(0.99)),
            "first eighth": float(measured[:eighth].mean()),
            "last eighth": float(measured[-eighth:].mean()),
            "state bytes": state_bytes,
        }

    def _start(self, model: TokenModel, prompt: Tensor) -> tuple[Callable[[Tensor], Tensor], int]:
        """Return a function from tokens (B,) to logits after a prompt (L, B), and the bytes of its state."""
        if self.memory == "dense":
            dense = DenseStep(model.backbone, self.batch_size, self.length)

            def step(tokens: Tensor) -> Tensor:
                logits: Tensor = model.head(model.norm(dense(model.embedding.weight[tokens])))
                return logits

            for tokens in prompt:
                step(tokens)
            return step, dense.nbytes
        state = model.init_state(self.batch_size, self.length if self.memory == "bounded" else None)
        state_bytes = state.nbytes
        _, state = model.stream(prompt.T, state)
        return model.decoder(state), state_bytes


@dataclass(frozen=True)
class DecodingSpeed(OnDevice[DecodedStream]):
    """Whole streams of one row by length, and the ends of streams of several rows."""

    quantity = "decoding-speed"
    subject = "Speed and memory of decoding (figure efficiency)"

    lengths: tuple[int, ...] = (1024, 2048, 4096, 8192)
    longest: int = 65_536
    few: int = 8
    many: int = 64
    tokens: int = 512
    rounds: int = 2
    s4d: StackSize = BASELINE
    ds4d: StackSize = SAME_WIDTH
    matched: StackSize = SAME_PARAMETERS

    def points(self) -> list[DecodedStream]:
        s4d: Model = (self.s4d, "endless")
        bounded: Model = (self.ds4d, "bounded")
        endless: Model = (self.ds4d, "endless")
        others: list[Model] = [(self.ds4d, "dense"), (self.matched, "bounded")]
        # Models, batch size, length and measured tokens. The endless state of many rows would take too much memory.
        groups: list[tuple[list[Model], int, int, int]] = [
            *(([s4d, bounded, endless, *others], 1, length, length) for length in self.lengths),
            ([s4d, bounded], 1, self.longest, self.longest),
            ([s4d, bounded, endless], self.few, self.lengths[-1], self.tokens),
            ([s4d, bounded], self.many, self.lengths[-1], self.tokens),
        ]
        return [
            DecodedStream(*model, batch_size, length, tokens, turn, self.device)
            for turn in range(self.rounds)
            for models, batch_size, length, tokens in groups
            for model in models
        ]

    def show(self, results: Mapping[DecodedStream, Readings]) -> Iterable[File]:
        rounds: dict[tuple[int, int, str], list[tuple[DecodedStream, Readings]]] = {}
        for point, values in results.items():
            rounds.setdefault((point.batch_size, point.length, point.label), []).append((point, values))
        fastest = {key: min(entries, key=lambda entry: entry[1]["mean"]) for key, entries in rounds.items()}
        head = [
            "batch", "T", "model", "microseconds/step", "median", "99 %", "tokens/s", "time / S4D",
            "last / first eighth", "MB of state per layer", "/ keys and values",
        ]  # fmt: skip
        rows = []
        for (batch_size, length, label), (point, values) in fastest.items():
            _, base = fastest.get((batch_size, length, self.s4d.label), (None, None))
            per_layer = values["state bytes"] / point.stack.depth
            keys_and_values = batch_size * 2 * length * point.stack.d_model * 4  # of attention, in float32
            rows.append([
                str(batch_size),
                f"{length:,}",
                label,
                *(f"{values[name] * 1e6:,.0f}" for name in ("mean", "median", "99th percentile")),
                f"{batch_size / values['mean']:,.0f}",
                "" if base is None else f"{values['mean'] / base['mean']:.1f}",
                f"{values['last eighth'] / values['first eighth']:.2f}" if point.tokens == length else "",
                f"{per_layer / 1e6:.3g}" if per_layer < 1e8 else f"{per_layer / 1e6:,.0f}",
                f"{per_layer / keys_and_values:.2g}",
            ])  # fmt: skip
        yield "table.md", tables.markdown(head, rows).encode()
        yield "decoding.png", self._figure({key[1:]: entry for key, entry in fastest.items() if key[0] == 1})

    def _figure(self, fastest: Mapping[tuple[int, str], tuple[DecodedStream, Readings]]) -> bytes:
        """Draw streams of one row by length."""
        from delayssm_lab.measure import by_length  # not loaded where memory is measured

        styles = {"bounded": ("-", "o"), "endless": ("--", "^"), "dense": (":", "s")}
        panels: dict[str, list[by_length.Line]] = {
            "decoding, tokens/s": [], "decoding, speed / S4D": [], "decoding, MB of state per layer": [],
        }  # fmt: skip
        points = {label: point for (_, label), (point, _) in fastest.items()}
        means = {key: values["mean"] for key, (_, values) in fastest.items()}
        for label, point in points.items():
            lengths = [length for length, other in fastest if other == label]
            state = {n: fastest[n, label][1]["state bytes"] / point.stack.depth / 1e6 for n in lengths}
            speeds = {n: 1 / means[n, label] for n in lengths}
            base = self.s4d.label
            ratios = {n: means[n, base] / means[n, label] for n in lengths if (n, base) in means}
            color = by_length.COLORS.get(point.stack.label, by_length.OTHER)
            style = styles["bounded" if point.stack.family == "S4D" else point.memory]
            for lines, values in zip(panels.values(), (speeds, ratios, state), strict=True):
                lines.append(by_length.Line(label, values, color, *style))
        return by_length.figure(panels, logarithmic=("decoding, tokens/s", "decoding, MB of state per layer"))
