"""Tokens in, logits out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm.config import Config, Device
from delayssm.layers import decoding
from delayssm.layers.checks import Lengths, Positions, check_lengths, check_module, check_whole
from delayssm.layers.decoding import Decoder
from delayssm.layers.inputs import Tokens
from delayssm.layers.stack import Stack, StackConfig
from delayssm.layers.streaming import Streaming
from delayssm.models.sampling import Sampling
from delayssm.storage.pretrained import Pretrained
from delayssm.system.spans import take, without_padding
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("vocab_size", self.vocab_size, 1)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> TokenModel:
        return TokenModel(self.vocab_size, self.backbone.build(device, dtype))


class TokenModel(Streaming[States], Pretrained):
    """Embedding, backbone, layer norm, head. The head has weights of its own and no bias.

    >>> stack = Stack(Block(DS4D(8, 16, max_delay=100)) for _ in range(2))
    >>> model = TokenModel(256, stack)
    >>> model(torch.randint(0, 256, (2, 300))).shape  # logits of the next token, after each token
    torch.Size([2, 300, 256])
    >>> tokens = list(model.eval().generate(b"Once upon a time", max_new_tokens=5, seed=0))
    >>> len(tokens)
    5

    Args:
        vocab_size: Number of tokens; they are numbers from 0 to vocab_size - 1.
        backbone: Stack of blocks of any kind.
    """

    model_type = "ds4d"

    def __init__(self, vocab_size: int, backbone: Stack) -> None:
        super().__init__()
        check_module("backbone", backbone, Stack)
        if any(getattr(module, "bidirectional", False) for module in backbone.modules()):
            raise ValueError(
                "a bidirectional layer sees the tokens that this model is to predict; use bidirectional=False"
            )
        place: dict[str, Any] = {"device": next(backbone.parameters()).device, "dtype": backbone.dtype}
        self.d_model = backbone.d_model
        self.embedding = Tokens(vocab_size, self.d_model, **place)
        self.backbone = backbone
        self.norm = nn.LayerNorm(self.d_model, **place)
        self.head = nn.Linear(self.d_model, vocab_size, bias=False, **place)

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return self.embedding.num_embeddings

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
        self.embedding.check_one_time(x)
        y, state = self.stream(x.unsqueeze(1), state)
        return y[:, 0], state

    def decoder(self, state: States) -> Decoder[States]:
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
        tokens = self._prompt(prompt)
        count = check_whole("max_new_tokens", max_new_tokens)
        return self._generate(tokens, count, sampling, _generator(tokens.device, seed), self._ends(stop))

    @torch.no_grad()
    def generate_batch(
        self,
        prompts: Sequence[Sequence[int] | Int[Tensor, " L"]],
        max_new_tokens: int,
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        stop: int | Sequence[int] = (),
    ) -> list[list[int]]:
        """Return the tokens that follow each of several prompts, of any lengths, which are decoded side by side.

        Row i is what `generate` yields for prompts[i] and seed + i; the arguments are explained there.
        """
        sampling, ends = Sampling(temperature, top_k, top_p), self._ends(stop)
        rows = [self._prompt(prompt)[0] for prompt in prompts]
        count = check_whole("max_new_tokens", max_new_tokens)
        found: list[list[int]] = [[] for _ in rows]
        if not rows or count == 0:
            return found
        generators = [_generator(rows[0].device, None if seed is None else seed + i) for i in range(len(rows))]
        lengths = torch.tensor([len(row) for row in rows], device=rows[0].device)
        state = self.init_state(len(rows), max_length=int(lengths.max()) + count - 1)
        tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True)
        logits, state = self._read(tokens, state, lengths)
        following, live = self.decoder(state), set(range(len(rows)))
        for i in range(count):
            chosen = [0] * len(rows)
            for row in sorted(live):
                chosen[row] = sampling.draw(logits[row], generators[row])
                if chosen[row] in ends:
                    live.remove(row)
                else:
                    found[row].append(chosen[row])
            if not live:
                break
            if i + 1 < count:  # rows that have ended go on as well; nobody reads what they say
                logits = following(torch.tensor(chosen, device=tokens.device))
        return found

    @torch.no_grad()
    def _generate(
        self, tokens: Tensor, count: int, sampling: Sampling, generator: torch.Generator, ends: set[int]
    ) -> Iterator[int]:
        if count == 0:
            return
        state = self.init_state(1, max_length=tokens.shape[1] + count - 1)
        logits, state = self._read(tokens, state, torch.full_like(tokens[:, 0], tokens.shape[1]))
        following = self.decoder(state)
        for i in range(count):
            token = sampling.draw(logits[0], generator)
            if token in ends:
                return
            yield token
            if i + 1 < count:
                logits = following(torch.tensor([token], device=tokens.device))

    def _read(
        self, tokens: Int[Tensor, "B L"], state: States, lengths: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B V"], States]:
        """Return the logits after the last token of each prompt, and the state; the others would take much memory."""
        last = lengths.unsqueeze(1) - 1
        if not decoding.is_original(self):
            y, state = self.stream(tokens, state, lengths)
            return take(y, last)[:, 0], state
        y, state = self.backbone.stream(self.embedding(tokens, lengths), state, lengths)
        return self._logits(take(y, last)[:, 0]), state

    def _prompt(self, prompt: Any) -> Int[Tensor, "1 L"]:
        """Return a prompt as a batch of one row, after making sure that it is made of tokens."""
        if isinstance(prompt, str):
            raise TypeError("a prompt is a sequence of tokens; turn the text into numbers first, as in text.encode()")
        try:
            tokens = torch.as_tensor(prompt if isinstance(prompt, Tensor) else list(prompt), device=self._device)
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"a prompt is a sequence of tokens, which are whole numbers, not {prompt!r}") from None
        if tokens.numel() == 0:
            raise ValueError("the prompt needs at least one token to begin with")
        return self.embedding.checked(tokens.unsqueeze(0))

    def _ends(self, stop: Any) -> set[int]:
        """Return the tokens that end a text, after making sure that they are tokens."""
        several = isinstance(stop, Iterable) and not isinstance(stop, str)
        ends = {check_whole("a token of stop", token) for token in (stop if several else [stop])}
        if wrong := sorted(token for token in ends if token >= self.vocab_size):
            raise ValueError(f"stop has {wrong}, but tokens are numbers from 0 to {self.vocab_size - 1}")
        return ends

    @property
    def _device(self) -> torch.device:
        return self.embedding.weight.device

    def extra_repr(self) -> str:
        return f"{self.vocab_size}"

    def _first_state(self, batch_size: int, max_length: int | None) -> States:
        return self.backbone.init_state(batch_size, max_length)

    def _logits(self, y: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(y))
        return logits


def _generator(device: torch.device, seed: int | None) -> torch.Generator:
    """Return a source of random numbers; without a seed, one that nobody has foreseen."""
    generator = torch.Generator(device)
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(check_whole("seed", seed))
    return generator
