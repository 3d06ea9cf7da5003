"""Speed and memory of exported streams in onnxruntime, beside the decoder of the library."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from delayssm.export import export_stream
from delayssm.models.token import TokenModel
from delayssm_lab.measure.measurement import Isolated
from delayssm_lab.measure.resources import seconds
from delayssm_lab.measure.stacks import NARROW, SAME_WIDTH, StackSize
from delayssm_lab.measure.streams import VOCABULARY
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

#: The library's own decoder; an exported model that writes its rings in place, as `StreamingSession` does; or as a
#: function that returns new ones.
Way = Literal["decoder", "in place", "copied"]
LABELS: dict[Way, str] = {
    "decoder": "decoder of this library",
    "in place": "onnxruntime, `StreamingSession`",
    "copied": "onnxruntime, `run`",
}
HEAD = [
    "model",
    "run by",
    "tokens in a call",
    "microseconds/call",
    "microseconds/token",
    "/ decoder",
    "MB/stream",
    "MB moved/call",
]


@dataclass(frozen=True)
class ExportedStream:
    """One stream without end, after as many tokens as its longest delay, in one thread."""

    stack: StackSize
    way: Way
    chunk: int
    max_delay: int
    calls: int

    def measure(self) -> Readings:
        torch.set_num_threads(1)
        model = TokenModel(VOCABULARY, self.stack.build(self.max_delay)).eval()
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "model.onnx"
            export_stream(model, path)
            call, states = self._calls(model, path)
        tokens = _random_chunks(self.chunk)
        for _ in range(math.ceil(self.max_delay / self.chunk)):
            call(next(tokens))
        times = [seconds(lambda: call(next(tokens))) for _ in range(self.calls)]
        return {
            "seconds": statistics.median(times),
            "stream bytes": sum(_bytes(state) for state in states),
            "moved bytes": sum(self._moved(state) for state in states),
        }

    def _calls(self, model: TokenModel, path: Path) -> tuple[Callable[[np.ndarray], object], list[dict[str, Any]]]:
        """Return the function that takes a chunk, and the description of its states."""
        from delayssm.export.streaming_session import StreamingSession

        session = StreamingSession(path)
        states: list[dict[str, Any]] = session.about["states"]
        if self.way == "in place":
            return session, states
        if self.way == "decoder":
            decoder = model.decoder(model.init_state(1))
            return lambda chunk: decoder(torch.from_numpy(chunk[0])), states
        names = [state["input"] for state in states]
        now = {state["input"]: np.zeros([1, *state["shape"][1:]], state["dtype"]) for state in states}

        def call(chunk: np.ndarray) -> np.ndarray:
            y, *after = session.session.run(None, {"x": chunk, **now})
            now.update(zip(names, after, strict=True))
            return np.asarray(y)

        return call, states

    def _moved(self, state: dict[str, Any]) -> int:
        """Return the bytes of a state that a call reads and writes: of a ring in place, one slot of each channel."""
        if not state["in_place"] or self.way == "copied":
            return 2 * _bytes(state)
        slots = int(state["shape"][1])
        return 2 * _bytes(state) * min(slots, self.chunk * self.stack.d_model) // slots


def _bytes(state: dict[str, Any]) -> int:
    count: int = math.prod(state["shape"][1:]) * np.dtype(state["dtype"]).itemsize
    return count


def _random_chunks(length: int) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(0)
    while True:
        yield generator.integers(VOCABULARY, size=(1, length))


@dataclass(frozen=True)
class ExportSpeed(Isolated[ExportedStream]):
    """Exported models of several sizes, token by token and in chunks."""

    name = "export-speed"
    title = "Speed and memory of exported streams in onnxruntime"

    stacks: tuple[tuple[StackSize, int], ...] = (
        (StackSize("DS4D", d_model=32, d_state=16, depth=2), 300),
        (NARROW, 1024),
        (SAME_WIDTH, 1024),
        (StackSize("S4D"), 3),
    )
    chunks: tuple[int, ...] = (1, 16, 333)
    calls: int = 300
    fewest: int = 5  # calls, however long a chunk is

    def points(self) -> list[ExportedStream]:
        ways: list[tuple[Way, int]] = [("decoder", 1), *(("in place", chunk) for chunk in self.chunks), ("copied", 1)]
        return [
            ExportedStream(stack, way, chunk, max_delay, max(self.fewest, math.ceil(self.calls / chunk)))
            for stack, max_delay in self.stacks
            for way, chunk in ways
        ]

    def show(self, results: Mapping[ExportedStream, Readings]) -> Iterable[File]:
        decoders = {point.stack: values["seconds"] for point, values in results.items() if point.way == "decoder"}
        rows = []
        for point, values in results.items():
            each = values["seconds"] / point.chunk
            stack, base = point.stack, decoders.get(point.stack)
            delays = f", delays up to {point.max_delay:,}" if stack.family == "DS4D" else ""
            rows.append([
                f"{stack.label}, N {stack.d_state}, {stack.depth} blocks{delays}",
                LABELS[point.way],
                str(point.chunk),
                f"{values['seconds'] * 1e6:,.0f}",
                f"{each * 1e6:,.0f}",
                "" if base is None else f"{each / base:.1f}",
                f"{values['stream bytes'] / 1e6:.3g}",
                f"{values['moved bytes'] / 1e6:.3g}",
            ])  # fmt: skip
        yield "table.md", tables.markdown(HEAD, rows).encode()
