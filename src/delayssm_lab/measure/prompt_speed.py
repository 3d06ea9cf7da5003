"""Time of a prompt that is fed to a stream in chunks, beside the FFT pass, which gives outputs but no state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from delayssm_lab.environment import Device
from delayssm_lab.measure.measurement import OnDevice
from delayssm_lab.measure.resources import fastest
from delayssm_lab.measure.stacks import SAME_WIDTH, StackSize
from delayssm_lab.measure.streams import build, random_tokens
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings

Way = Literal["bounded", "endless", "FFT"]


@dataclass(frozen=True)
class Prompt:
    """A prompt of one row, in chunks of `chunk` tokens, to a new stream of at most `max_length` tokens or of any."""

    stack: StackSize
    way: Way
    tokens: int
    chunk: int
    max_length: int
    device: Device = "cpu"

    @torch.no_grad()
    def measure(self) -> Readings:
        x = random_tokens(self.tokens, 1, self.device).T
        model = build(self.stack, x, self.max_length)

        def feed() -> None:
            state = model.init_state(1, self.max_length if self.way == "bounded" else None)
            for chunk in torch.split(x, self.chunk, dim=1):
                _, state = model.stream(chunk, state)

        return {"seconds": fastest((lambda: model(x)) if self.way == "FFT" else feed, 5, self.device)}


@dataclass(frozen=True)
class PromptSpeed(OnDevice[Prompt]):
    """A prompt to the model that `decoding-speed` measures, in chunks of different sizes."""

    quantity = "prompt-speed"
    subject = "Speed of prompts, in chunks and by FFT"

    tokens: int = 4096
    chunks: tuple[int, ...] = (1, 7, 64, 1000)
    endless_chunks: tuple[int, ...] = (64, 1000)
    max_length: int = 8192
    stack: StackSize = SAME_WIDTH

    def points(self) -> list[Prompt]:
        ways: list[tuple[Way, int]] = [
            *(("bounded", chunk) for chunk in (*self.chunks, self.tokens)),
            *(("endless", chunk) for chunk in (*self.endless_chunks, self.tokens)),
            ("FFT", self.tokens),
        ]  # fmt: skip
        return [Prompt(self.stack, way, self.tokens, chunk, self.max_length, self.device) for way, chunk in ways]

    def show(self, results: Mapping[Prompt, Readings]) -> Iterable[File]:
        head = ["method", "tokens in a chunk", "microseconds/token", "tokens/s", "time / FFT"]
        base = next((values["seconds"] for point, values in results.items() if point.way == "FFT"), None)
        rows = [
            [
                point.way if point.way == "FFT" else f"{point.way} stream",
                "all" if point.chunk == point.tokens else f"{point.chunk:,}",
                f"{values['seconds'] / point.tokens * 1e6:,.1f}",
                f"{point.tokens / values['seconds']:,.0f}",
                "" if base is None else f"{values['seconds'] / base:.2f}",
            ]
            for point, values in results.items()
        ]
        yield "table.md", tables.markdown(head, rows).encode()
