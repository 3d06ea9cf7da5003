"""Tokens in, logits out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm.config import Config, Device
from delayssm.layers import decoding
from delayssm.layers.checks import Lengths, Positions, check_lengths
from delayssm.layers.decoding import Decoder
from delayssm.layers.inputs import Tokens
from delayssm.layers.stack import Stack, StackConfig
from delayssm.layers.streaming import Streaming
from delayssm.models.sampling import Sampling
from delayssm.system.spans import without_padding
from delayssm.system.state import States


@dataclass(frozen=True)
class TokenModelConfig(Config):
    """Configuration of `TokenModel`.

    Args:
        vocab_size: Number of tokens; they are numbers from 0 to vocab_size - 1.
        backbone: Stack of blocks.
    """

    vocab_size: int
    backbone: StackConfig

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> TokenModel:
        return TokenModel(self.vocab_size, self.backbone.build(device, dtype))


class TokenModel(Streaming[States]):
    """Embedding, backbone, layer norm, head. The head has weights of its own and no bias.

    Args:
        vocab_size: Number of tokens; they are numbers from 0 to vocab_size - 1.
        backbone: Stack of blocks of any kind.
    """

    def __init__(self, vocab_size: int, backbone: Stack) -> None:
        super().__init__()
        like = next(backbone.parameters())
        self.vocab_size = vocab_size
        self.d_model = backbone.d_model
        self.embedding = Tokens(vocab_size, self.d_model, device=like.device, dtype=like.dtype)
        self.backbone = backbone
        self.norm = nn.LayerNorm(self.d_model, device=like.device, dtype=like.dtype)
        self.head = nn.Linear(self.d_model, vocab_size, bias=False, device=like.device, dtype=like.dtype)

    @property
    def config(self) -> TokenModelConfig:
        return TokenModelConfig(self.vocab_size, self.backbone.config)

    def forward(self, x: Int[Tensor, "B L"], lengths: Lengths = None, at: Positions = None) -> Float[Tensor, "B T V"]:
        """Return logits after each token of whole sequences, or only after those at the positions `at` of each row."""
        spans = check_lengths(lengths, x)
        y = self.backbone(self.embedding(x, spans), spans, at)
        return without_padding(self._logits(y), spans, at)

    def stream(
        self, x: Int[Tensor, "B L"], state: States, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L V"], States]:
        """Return logits after each token of a chunk, and the state after it."""
        spans = check_lengths(lengths, x)
        y, state = self.backbone.stream(self.embedding(x, spans), state, spans)
        return without_padding(self._logits(y), spans), state

    @torch.no_grad()
    def step(self, x: Int[Tensor, " B"], state: States) -> tuple[Float[Tensor, "B V"], States]:
        """Return logits for one token per row, and the state after it."""
        if x.ndim != 1:
            raise ValueError(f"step takes one token per row, shape (batch,), not {tuple(x.shape)}")
        y, state = self.stream(x.unsqueeze(1), state)
        return y[:, 0], state

    def decoder(self, state: States) -> Decoder:
        """Return this model bound to streams and to the parameters as they are now: the fastest way to go on."""
        return decoding.bind(self, state)

    def generate(
        self,
        prompt: Sequence[int] | Int[Tensor, " L"],
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: int | Sequence[int] = (),
    ) -> Iterator[int]:
        """Yield the tokens that follow a prompt, one by one as they are chosen.

        Args:
            prompt: Tokens to begin with, at least one.
            max_new_tokens: Largest number of tokens to generate.
            temperature: Divisor of the logits; 0 takes the most likely token.
            top_k: Number of most likely tokens to choose from; None: all.
            top_p: Choose from the fewest tokens that have this probability together; None: all.
            seed: Seed of the choices; the same seed gives the same tokens.
            stop: Token or tokens before which generation ends.
        """
        sampling = Sampling(temperature, top_k, top_p)
        values = prompt if isinstance(prompt, Tensor) else list(prompt)
        tokens = torch.as_tensor(values, device=self.head.weight.device).unsqueeze(0)
        if tokens.numel() == 0:
            raise ValueError("the prompt needs at least one token to begin with")
        tokens = self.embedding.checked(tokens)
        if max_new_tokens < 0:
            raise ValueError(f"max_new_tokens must be at least 0, not {max_new_tokens}")
        ends = {stop} if isinstance(stop, int) else set(stop)
        if wrong := sorted(token for token in ends if not 0 <= token < self.vocab_size):
            raise ValueError(f"stop has {wrong}, but tokens are numbers from 0 to {self.vocab_size - 1}")
        generator = torch.Generator(tokens.device)
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(seed)
        return self._generate(tokens, max_new_tokens, sampling, generator, ends)

    @torch.no_grad()
    def _generate(
        self, tokens: Tensor, count: int, sampling: Sampling, generator: torch.Generator, ends: set[int]
    ) -> Iterator[int]:
        if count == 0:
            return
        state = self.init_state(1, max_length=tokens.shape[1] + count - 1)
        y, state = self.backbone.stream(self.embedding(tokens), state)
        logits = self._logits(y[:, -1])
        following = self.decoder(state)
        for i in range(count):
            token = sampling.draw(logits[0], generator)
            if token in ends:
                return
            yield token
            if i + 1 < count:
                logits = following(torch.tensor([token], device=tokens.device))

    def extra_repr(self) -> str:
        return f"{self.vocab_size}"

    def _first_state(self, batch_size: int, max_length: int | None) -> States:
        return self.backbone.init_state(batch_size, max_length)

    def _logits(self, y: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(y))
        return logits
