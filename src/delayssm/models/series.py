"""Values in, values out: an answer at every time."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.config import Config, Device
from delayssm.layers import decoding
from delayssm.layers.checks import Lengths, Positions, check_lengths, check_module, check_rows, check_whole
from delayssm.layers.decoding import Decoder
from delayssm.layers.inputs import Values, ValuesConfig
from delayssm.layers.stack import Stack, StackConfig
from delayssm.layers.streaming import Streaming
from delayssm.storage.pretrained import Pretrained
from delayssm.system.spans import without_padding
from delayssm.system.state import States


@dataclass(frozen=True)
class SeriesModelConfig(Config):
    """Configuration of `SeriesModel`.

    Args:
        inputs: Input layer.
        backbone: Stack of blocks.
        outputs: Numbers in an answer.
    """

    inputs: ValuesConfig
    backbone: StackConfig
    outputs: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("outputs", self.outputs, 1)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> SeriesModel:
        return SeriesModel(self.inputs.build(device, dtype), self.backbone.build(device, dtype), self.outputs)


class SeriesModel(Streaming[States], Pretrained):
    """Linear input layer, backbone, layer norm, linear head: signals (B, L, features) to answers (B, L, outputs).

    >>> stack = Stack(Block(DS4D(8, 16, max_delay=100)) for _ in range(2))
    >>> model = SeriesModel(Values(3, 8), stack, outputs=1)
    >>> model(torch.randn(2, 300, 3)).shape
    torch.Size([2, 300, 1])

    Args:
        inputs: Input layer.
        backbone: Stack of blocks of any kind.
        outputs: Numbers in an answer.
    """

    def __init__(self, inputs: Values, backbone: Stack, outputs: int) -> None:
        super().__init__()
        check_module("inputs", inputs, Values)
        check_module("backbone", backbone, Stack)
        check_whole("outputs", outputs, 1)
        width, like = inputs.config.d_model, inputs.weight
        if width != backbone.d_model:
            raise ValueError(f"the input layer has width {width}, but the backbone has {backbone.d_model}")
        self.d_model = width
        self.inputs = inputs
        self.backbone = backbone
        self.norm = nn.LayerNorm(width, device=like.device, dtype=like.dtype)
        self.head = nn.Linear(width, outputs, device=like.device, dtype=like.dtype)

    @property
    def config(self) -> SeriesModelConfig:
        return SeriesModelConfig(self.inputs.config, self.backbone.config, self.head.out_features)

    def forward(
        self, x: Float[Tensor, "B L F"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T O"]:
        """Return the answers at every time of whole sequences, or only at the positions `at` of each row."""
        spans = check_lengths(lengths, x)
        y = self.backbone(self.inputs(x, spans), spans, at)
        return without_padding(self._answer(y), spans, at)

    def stream(
        self, x: Float[Tensor, "B L F"], state: States, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L O"], States]:
        """Return the answers at every time of a chunk, and the state after it."""
        spans = check_lengths(lengths, x)
        y, state = self.backbone.stream(self.inputs(x, spans), state, spans)
        return without_padding(self._answer(y), spans), state

    @torch.no_grad()
    def step(self, x: Float[Tensor, "B F"], state: States) -> tuple[Float[Tensor, "B O"], States]:
        """Return the answers to the values of one time, and the state after it."""
        self.inputs.check_one_time(x)
        y, state = self.stream(x.unsqueeze(1), state)
        return y[:, 0], state

    def decoder(self, state: States) -> Decoder[States]:
        """Return this model bound to streams and to the parameters as they are now: the fastest way to go on."""
        return SeriesDecoder(self, state) if decoding.is_original(self) else Decoder(self, state)

    @torch.no_grad()
    def rollout(
        self, values: Float[Tensor, "B F"], state: States, steps: int, known: Float[Tensor, "B T K"] | None = None
    ) -> tuple[Float[Tensor, "B T O"], States]:
        """Return the answers of `steps` times, each of which is fed back as the values of the next, and the state.

        The first of `steps` inputs is `values`. From the second on, the answer takes the place of the first O values,
        and what is known beforehand, such as the hour of the day, that of the other K = F - O.

        Args:
            values: Values of the first time.
            state: Streams before it.
            steps: Number of times.
            known: Values that are not answers, of the times after the first; None if the answers are all.
        """
        check_rows(values, state.batch_size)
        steps, outputs, features = check_whole("steps", steps, 1), self.head.out_features, self.inputs.in_features
        if outputs > features:
            raise ValueError(
                f"{features} values go in and {outputs} come out, so this model cannot be fed its own answers"
            )
        expected = (len(values), steps - 1, features - outputs)
        if known is None and features == outputs:
            known = values.new_empty(expected)
        if known is None or known.shape != expected:
            given = "nothing" if known is None else f"shape {tuple(known.shape)}"
            raise ValueError(
                f"{features} values go in and {outputs} come out, so {steps} steps need known values of shape "
                f"{expected}, not {given}"
            )
        following, answers = self.decoder(state), []
        for t in range(steps):
            answers.append(following(values))
            if t + 1 < steps:
                values = torch.cat([answers[-1], known[:, t]], dim=1)
        return torch.stack(answers, 1), following.state

    def _first_state(self, batch_size: int, max_length: int | None) -> States:
        return self.backbone.init_state(batch_size, max_length)

    def _answer(self, y: Tensor) -> Tensor:
        answer: Tensor = self.head(self.norm(y))
        return answer


class SeriesDecoder(Decoder[States]):
    """A `SeriesModel` whose stack makes one compiled call per time."""

    def __init__(self, model: SeriesModel, state: States) -> None:
        super().__init__(model, state)
        self._series, self._stack = model, decoding.bind(model.backbone, state)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        self._series.inputs.check_one_time(x)
        check_rows(x, self._state.batch_size)
        return self._series._answer(self._stack(self._series.inputs(x.unsqueeze(1))[:, 0]))

    @property
    def state(self) -> States:
        return self._stack.state

    @property
    def position(self) -> Tensor:
        return self._stack.position
