"""The delta rule: a matrix that stores values under keys, and is read by queries.

    u_t = beta_t (v_t - S_(t-1) k_t),    S_t = S_(t-1) + u_t k_t^T,    y_t = S_t q_t

A value that is already stored under the key is replaced, to the extent of beta_t in [0, 1]. With keys of unit length,
S never grows by itself.

A chunk of tokens that begins with S is a triangular system. With the tokens as rows of Q, K, V and U,

    (1 + A) U = beta (V - K S^T),    A_ts = beta_t k_t . k_s for s < t, else 0
    Y = Q S^T + tril(Q K^T) U,       S' = S + U^T K

The systems of all chunks are solved at once; only S goes from chunk to chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from delayssm.system.memory import Memory

#: Tokens of a chunk. The work of a token grows with it, and the number of steps that wait for each other falls.
CHUNK = 64


def delta_rule(
    q: Float[Tensor, "B h L d"],
    k: Float[Tensor, "B h L d"],
    v: Float[Tensor, "B h L e"],
    beta: Float[Tensor, "B h L"],
    S: Float[Tensor, "B h e d"],
) -> tuple[Float[Tensor, "B h L e"], Float[Tensor, "B h e d"]]:
    """Return y_t for all t, and S after the last token."""
    length = q.shape[2]
    if length == 0:
        return v, S
    size = min(CHUNK, length)
    # Tokens that are added to fill the last chunk have beta = 0 and store nothing.
    q, k, v, beta = (_chunks(t, size) for t in (q, k, v, beta.unsqueeze(-1)))
    solved = torch.linalg.solve_triangular(
        (beta * (k @ k.mT)).tril(-1), beta * torch.cat([v, k], -1), upper=False, unitriangular=True
    )
    new, old = solved.split([v.shape[-1], k.shape[-1]], -1)  # U = new - old S^T
    stored, written = [], []
    for i in range(q.shape[2]):
        u = new[:, :, i] - old[:, :, i] @ S.mT
        stored.append(S)
        written.append(u)
        S = S + u.mT @ k[:, :, i]
    y = q @ torch.stack(stored, 2).mT + (q @ k.mT).tril() @ torch.stack(written, 2)
    return y.flatten(2, 3)[:, :, :length], S


def _chunks(t: Float[Tensor, "B h L d"], size: int) -> Float[Tensor, "B h n C d"]:
    """Return the tokens in chunks, the last one filled up with zeros."""
    B, h, length, d = t.shape
    return F.pad(t, (0, 0, 0, -length % size)).reshape(B, h, -(-length // size), size, d)


@dataclass(frozen=True)
class Associations(Memory):
    """Memory of a stream: the inputs that a short convolution still needs, and S of each head."""

    recent: Tensor  # (B, taps - 1, H), at least float32
    S: Tensor  # (B, heads, e, d), in the same precision
    max_length: int | None = None

    def tensors(self) -> dict[str, Tensor]:
        return {"recent": self.recent, "S": self.S}

    def map(self, function: Callable[[Tensor], Tensor]) -> Associations:
        return replace(self, recent=function(self.recent), S=function(self.S))

    def to(self, device: torch.device | str) -> Associations:
        return self.map(lambda t: t.to(device))

    def become(self, other: Associations) -> Associations:
        """Take the content of another memory, in place."""
        self.recent.copy_(other.recent)
        self.S.copy_(other.S)
        return self

    def difference(self, other: Memory) -> str | None:
        if other.max_length != self.max_length:
            return f"these streams have max_length={other.max_length}, not {self.max_length}"
        return None

    def describe(self) -> str:
        inputs, (heads, values, keys) = self.recent.shape[1], self.S.shape[1:]
        per_stream = sum(t.nbytes // len(t) for t in self.tensors().values())
        matrices = f"{heads} matri{'x' if heads == 1 else 'ces'} of {values} x {keys}"
        return f"the last {inputs} input{'' if inputs == 1 else 's'} and {matrices}, {per_stream:,} bytes a stream"
