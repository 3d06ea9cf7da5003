"""The first layer of a model: tokens or values become vectors."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm.config import Config, Device
from delayssm.layers.checks import Lengths, check_lengths, check_sequence, check_whole, visible
from delayssm.system.spans import without_padding


@dataclass(frozen=True)
class TokensConfig(Config):
    """Configuration of `Tokens`.

    Args:
        vocab_size: Number of tokens; they are numbers from 0 to vocab_size - 1.
        d_model: Width of the vectors.
    """

    vocab_size: int
    d_model: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("vocab_size", self.vocab_size, 1)
        check_whole("d_model", self.d_model, 1)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> "Tokens":
        return Tokens(self.vocab_size, self.d_model, device=device, dtype=dtype)


class Tokens(nn.Embedding):
    """A learned vector for each token.

    >>> Tokens(vocab_size=256, d_model=8)(torch.randint(0, 256, (2, 300))).shape
    torch.Size([2, 300, 8])
    """

    def __init__(
        self, vocab_size: int, d_model: int, *, device: Device = None, dtype: torch.dtype | None = None
    ) -> None:
        config = TokensConfig(vocab_size, d_model)
        super().__init__(config.vocab_size, config.d_model, device=device, dtype=dtype)

    @property
    def config(self) -> TokensConfig:
        """Everything that defines this layer, as large as it is now."""
        return TokensConfig(self.num_embeddings, self.embedding_dim)

    def forward(self, x: Int[Tensor, "B L"], lengths: Lengths = None) -> Float[Tensor, "B L H"]:
        """Return the vectors of tokens. Padding may hold any number."""
        return super().forward(self.checked(x, lengths))

    def check_one_time(self, x: Tensor) -> None:
        """Raise unless x is one token per row."""
        if x.ndim != 1:
            raise ValueError(f"expected one token per row, shape (batch,), not {tuple(x.shape)}")

    def checked(self, x: Tensor, lengths: Lengths = None) -> Tensor:
        """Return x with zeros in its padding, after making sure that it is made of tokens."""
        if not isinstance(x, Tensor):
            raise TypeError(f"expected a tensor of tokens, shape (batch, length), not {type(x).__name__}")
        if x.ndim != 2:
            raise ValueError(f"expected tokens of shape (batch, length), not {tuple(x.shape)}")
        if x.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"tokens must be whole numbers (torch.int64), not {x.dtype}")
        spans = check_lengths(lengths, x)
        if spans is not None:
            x = x.masked_fill(spans.padding(x.shape[1]).squeeze(-1), 0)
        if visible(x) and x.numel():
            low, high = map(int, x.aminmax())
            if low < 0 or high >= self.num_embeddings:
                wrong = low if low < 0 else high
                raise ValueError(f"token {wrong} is not a number from 0 to {self.num_embeddings - 1}")
        return x


@dataclass(frozen=True)
class ValuesConfig(Config):
    """Configuration of `Values`.

    Args:
        features: Numbers per time.
        d_model: Width of the vectors.
    """

    features: int
    d_model: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("features", self.features, 1)
        check_whole("d_model", self.d_model, 1)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> "Values":
        return Values(self.features, self.d_model, device=device, dtype=dtype)


class Values(nn.Linear):
    """A linear map of the numbers of each time.

    >>> Values(features=3, d_model=8)(torch.randn(2, 300, 3)).shape
    torch.Size([2, 300, 8])
    """

    def __init__(self, features: int, d_model: int, *, device: Device = None, dtype: torch.dtype | None = None) -> None:
        self._config = ValuesConfig(features, d_model)
        super().__init__(features, d_model, device=device, dtype=dtype)

    @property
    def config(self) -> ValuesConfig:
        """Everything that defines this layer."""
        return self._config

    def forward(self, x: Float[Tensor, "B L F"], lengths: Lengths = None) -> Float[Tensor, "B L H"]:
        """Return the vectors of values. Padding may hold anything, NaN included, also in the backward pass."""
        check_sequence(x, self.in_features, self.weight.dtype, "features")
        return super().forward(without_padding(x, check_lengths(lengths, x)))

    def check_one_time(self, x: Tensor) -> None:
        """Raise unless x has the values of one time for each row."""
        if x.ndim != 2:
            raise ValueError(
                f"expected the values of one time, shape (batch, {self.in_features}), not {tuple(x.shape)}"
            )
