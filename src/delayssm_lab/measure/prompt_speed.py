"""Time of a prompt: by recurrence, which also gives the state to decode from, and by FFT, which gives outputs only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from delayssm import TokenModel
from delayssm_lab.environment import Device
from delayssm_lab.measure.decoding_speed import VOCABULARY
from delayssm_lab.measure.measurement import OnDevice
from delayssm_lab.measure.resources import fastest
from delayssm_lab.measure.stacks import SAME_WIDTH, StackSize
from delayssm_lab.report import tables
from delayssm_lab.study import File, Readings


@dataclass(frozen=True)
class Prompt:
    """A prompt of one row to a stream of at most `max_length` tokens."""

    stack: StackSize
    tokens: int
    max_length: int
    device: Device = "cpu"

    @torch.no_grad()
    def measure(self) -> Readings:
        model = TokenModel(VOCABULARY, self.stack.build(self.max_length)).to(self.device).eval()
        x = torch.randint(0, VOCABULARY, (1, self.tokens), device=self.device)
        return {
            "recurrence": fastest(lambda: model.stream(x, model.init_state(1, self.max_length)), 7, self.device),
            "FFT": fastest(lambda: model(x), 7, self.device),
        }


@dataclass(frozen=True)
class PromptSpeed(OnDevice[Prompt]):
    """Prompts of different lengths to the model that `decoding-speed` measures."""

    quantity = "prompt-speed"
    subject = "Speed of prompts, by recurrence and by FFT"

    tokens: tuple[int, ...] = (128, 1024, 8192)
    max_length: int = 8192
    stack: StackSize = SAME_WIDTH

    def points(self) -> list[Prompt]:
        return [Prompt(self.stack, tokens, self.max_length, self.device) for tokens in self.tokens]

    def show(self, results: Mapping[Prompt, Readings]) -> Iterable[File]:
        head = ["tokens", "ms by recurrence", "ms by FFT", "tokens/s by recurrence"]
        rows = [
            [
                f"{point.tokens:,}",
                *(f"{values[name] * 1e3:,.0f}" for name in ("recurrence", "FFT")),
                f"{point.tokens / values['recurrence']:,.0f}",
            ]
            for point, values in results.items()
        ]
        yield "table.md", tables.markdown(head, rows).encode()
