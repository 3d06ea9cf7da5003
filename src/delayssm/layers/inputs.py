"""The first layer of a model: tokens or values become vectors."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from delayssm.layers.streaming import Lengths, check_lengths, check_sequence
from delayssm.system.padding import padding


class Tokens(nn.Embedding):
    """A vector for each of `vocab_size` tokens."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        if vocab_size < 1:
            raise ValueError(f"vocab_size must be at least 1, not {vocab_size}")
        super().__init__(vocab_size, d_model)

    def forward(self, x: Int[Tensor, "B L"], lengths: Lengths = None) -> Float[Tensor, "B L H"]:
        """Padding may hold any number."""
        return super().forward(self.checked(x, lengths))

    def checked(self, x: Tensor, lengths: Lengths = None) -> Tensor:
        """x, after making sure that it is made of tokens; 0 where it is padding."""
        if x.ndim != 2:
            raise ValueError(f"expected tokens of shape (batch, length), not {tuple(x.shape)}")
        if x.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"tokens must be whole numbers (torch.int64), not {x.dtype}")
        valid = check_lengths(lengths, x)
        if valid is not None:
            x = x.masked_fill(padding(valid, x.shape[1]).squeeze(-1), 0)
        # Looking at values elsewhere would make the host wait for the device.
        if x.device.type == "cpu" and x.numel() and not torch.compiler.is_compiling():
            low, high = map(int, x.aminmax())
            if low < 0 or high >= self.num_embeddings:
                wrong = low if low < 0 else high
                raise ValueError(f"token {wrong} is not a number from 0 to {self.num_embeddings - 1}")
        return x


class Values(nn.Linear):
    """A linear map of `features` numbers per time."""

    def __init__(self, features: int, d_model: int) -> None:
        if features < 1:
            raise ValueError(f"features must be at least 1, not {features}")
        super().__init__(features, d_model)

    def forward(self, x: Float[Tensor, "B L F"], lengths: Lengths = None) -> Float[Tensor, "B L H"]:
        """What is padding is left to the backbone."""
        check_sequence(x, self.in_features, self.weight.dtype)
        return super().forward(x)
