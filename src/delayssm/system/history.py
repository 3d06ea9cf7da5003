"""The convolution of a signal that arrives piece by piece (online, or relaxed, convolution).

Output t gets the inputs of its own block of 64 tokens directly, when token t comes. After n tokens, a multiple of 64,
let U be the largest power of two that divides n: what the last U inputs contribute to the next U outputs is then added
to those, by one transform of U numbers. Every pair of an input and a later output is met exactly once, at a cost of
O(log^2 T) per token.

The memory has S slots, where T <= 2 S. Slot t mod S has what is known of output t until token t comes, and from then on
input t. Nothing reaches an output from S on before S tokens are there; then all of them contribute at once, and are not
needed any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from delayssm import backends


@dataclass(frozen=True)
class Response:
    """An impulse response, as a backend wants it for S slots. It is shared by all streams of a module.

    Args:
        near: The samples that are used as they are.
        levels: What is used after fewer than S tokens.
        far: What is used after S tokens, which is once in a stream, or nothing. It takes as much as all the rest.
    """

    near: Tensor
    levels: Tensor
    far: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes that it occupies."""
        return sum(t.nbytes for t in (self.near, self.levels, self.far))


def advance(
    x: Float[Tensor, "B L H"],
    lengths: Int[Tensor, " B"],
    position: Int[Tensor, " B"],
    values: Float[Tensor, "B S W"],
    response: Response,
    max_length: int,
) -> Float[Tensor, "B L H"]:
    """Return the outputs for a chunk; the memory advances in place."""
    y: Tensor = _advance(x, lengths, position, values, response.near, response.levels, response.far, max_length)
    return y


@torch.library.custom_op("delayssm::advance_", mutates_args=("values",))
def _advance(
    x: Tensor, lengths: Tensor, position: Tensor, values: Tensor, near: Tensor, levels: Tensor, far: Tensor,
    max_length: int,
) -> Tensor:  # fmt: skip
    return backends.active(x.device.type).advance(
        x=x, lengths=lengths, position=position, values=values, response=(near, levels, far), max_length=max_length
    )


@_advance.register_fake
def _(
    x: Tensor, lengths: Tensor, position: Tensor, values: Tensor, near: Tensor, levels: Tensor, far: Tensor,
    max_length: int,
) -> Tensor:  # fmt: skip
    return torch.empty_like(x, memory_format=torch.contiguous_format)
