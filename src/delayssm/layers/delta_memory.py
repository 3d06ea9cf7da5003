"""A memory that is addressed by content, for what no fixed delay leads to."""

from dataclasses import KW_ONLY, dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.config import Config, Device, Factory, constructor
from delayssm.layers.checks import (
    Lengths,
    Positions,
    check_lengths,
    check_positions,
    check_rows,
    check_sequence,
    check_state,
    check_streams,
    check_whole,
)
from delayssm.layers.streaming import Streaming
from delayssm.system import plain
from delayssm.system.delta import Associations, delta_rule
from delayssm.system.spans import take, without_padding
from delayssm.system.state import State


@dataclass(frozen=True)
class DeltaMemoryConfig(Config):
    """Configuration of `DeltaMemory`.

    Args:
        d_model: Number of channels H.
        heads: Number of memories, which are independent of each other.
        head_size: Length d of keys and values. A memory holds about as many associations.
        taps: Number of tokens that the short convolution sees. 1 sees the token itself alone.
    """

    d_model: int
    _: KW_ONLY
    heads: int = 1
    head_size: int = 16
    taps: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("d_model", "heads", "head_size", "taps"):
            check_whole(name, getattr(self, name), 1)

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> "DeltaMemory":
        return DeltaMemory(self, device=device, dtype=dtype)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _DeltaMemoryArguments(DeltaMemoryConfig, Factory): ...


class DeltaMemory(Streaming[State]):
    """Store values under keys by the delta rule, and read them by queries.

    A delay fetches what happened a given number of steps ago; this layer fetches what followed a given content. After a
    short convolution, by which a token meets the ones before it, each head computes::

        z_t = bias + sum over i < taps of w_i x_(t-i)
        q_t, k_t = linear(z_t), scaled to unit length;  v_t = linear(z_t);  beta_t = sigmoid(linear(z_t))
        S_t = S_(t-1) + beta_t (v_t - S_(t-1) k_t) k_t^T
        y_t = linear(S_t q_t)

    It stands in a stack beside delay layers:

    >>> model = Stack([Block(DS4D(8, 16, max_delay=100)), Block(DeltaMemory(8, head_size=4))])
    >>> model(torch.randn(2, 300, 8)).shape
    torch.Size([2, 300, 8])
    """

    @constructor(_DeltaMemoryArguments)
    def __init__(self, config: DeltaMemoryConfig, device: Device, dtype: torch.dtype | None) -> None:
        super().__init__()
        self._config = config
        self.d_model = H = config.d_model
        width = config.heads * config.head_size
        self.convolution = nn.Conv1d(H, H, config.taps, groups=H, device=device, dtype=dtype)
        self.qkv = nn.Linear(H, 3 * width, bias=False, device=device, dtype=dtype)
        self.beta = nn.Linear(H, config.heads, device=device, dtype=dtype)
        self.out = nn.Linear(width, H, bias=False, device=device, dtype=dtype)

    @property
    def config(self) -> DeltaMemoryConfig:
        return self._config

    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """Return the outputs for a whole sequence, in chunks that are solved together."""
        check_sequence(x, self.d_model, self.dtype)
        check_positions(at, x)
        spans = check_lengths(lengths, x)
        x = without_padding(x, spans)
        counts = None if spans is None else spans.lengths
        y, _ = self._advance(x if spans is None else spans.to_front(x), self._memory(len(x), None), counts)
        return without_padding(take(y if spans is None else spans.to_place(y), at), spans, at)

    def stream(
        self, x: Float[Tensor, "B L H"], state: State, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """Return the outputs for a chunk, and the state after it."""
        check_streams()
        check_sequence(x, self.d_model, self.dtype)
        spans = check_lengths(lengths, x)
        check_state(state, State)
        check_rows(x, state.batch_size)
        counts = None if spans is None else spans.lengths
        state.require_room(x.shape[1], counts)
        in_a_graph = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *self.parameters()))
        state.require_owner(self._identity, x.device, in_a_graph)
        memory = state.memory
        assert isinstance(memory, Associations)
        x = without_padding(x, spans)
        y, after = self._advance(x if spans is None else spans.to_front(x), memory, counts)
        if not (in_a_graph or any(t.requires_grad for t in memory.tensors().values()) or plain.exporting()):
            after = memory.become(after)
        y = y if spans is None else without_padding(spans.to_place(y), spans)
        counts = torch.full_like(state.position, x.shape[1]) if counts is None else counts
        return y, state.advanced(x.shape[1], counts, after)

    def extra_repr(self) -> str:
        return str(self._config)

    @property
    def dtype(self) -> torch.dtype:
        return self.qkv.weight.dtype

    def _first_state(self, batch_size: int, max_length: int | None) -> State:
        position = torch.zeros(batch_size, dtype=torch.int64, device=self.qkv.weight.device)
        return State(self._memory(batch_size, max_length), position, self._identity)

    def _memory(self, batch_size: int, max_length: int | None) -> Associations:
        """Return the memory before the first token. It is in float32 at least."""
        config, weight = self._config, self.qkv.weight
        dtype = torch.promote_types(weight.dtype, torch.float32)
        recent = torch.zeros(batch_size, config.taps - 1, self.d_model, dtype=dtype, device=weight.device)
        size = config.head_size
        S = torch.zeros(batch_size, config.heads, size, size, dtype=dtype, device=weight.device)
        return Associations(recent, S, max_length)

    def _advance(
        self, x: Float[Tensor, "B L H"], memory: Associations, counts: Tensor | None
    ) -> tuple[Float[Tensor, "B L H"], Associations]:
        """Return the outputs for a chunk and the memory after it; row i has counts[i] tokens, which come first."""
        (B, L, _), d = x.shape, self._config.head_size
        if L == 0:
            return x.clone(), memory.map(torch.clone)
        recent = torch.cat([memory.recent, x.to(memory.recent.dtype)], 1)
        z = F.conv1d(recent.to(x.dtype).mT, self.convolution.weight, self.convolution.bias, groups=self.d_model).mT
        beta = torch.sigmoid(self.beta(z)).mT
        if counts is not None:
            beta = beta * (torch.arange(L, device=x.device) < counts[:, None]).unsqueeze(1)
        q, k, v = self.qkv(z).view(B, L, 3, self._config.heads, d).permute(2, 0, 3, 1, 4).to(memory.S.dtype)
        with torch.autocast(x.device.type, enabled=False):
            y, S = delta_rule(F.normalize(q, dim=-1), F.normalize(k, dim=-1), v, beta.to(v.dtype), memory.S)
        out = self.out(y.transpose(1, 2).flatten(2).to(z.dtype))
        last = (L if counts is None else counts[:, None]) + torch.arange(self._config.taps - 1, device=x.device)
        return out.to(x.dtype), replace(memory, recent=take(recent, last.expand(B, -1)), S=S)
