"""Token by token, as fast as it goes: one compiled call for a whole model in place of dozens of small operations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from delayssm.backends import choice
from delayssm.layers.block import Block
from delayssm.layers.checks import check_state
from delayssm.layers.delay_ssm import DelaySSM
from delayssm.layers.diagonal_ssm import DiagonalSSM
from delayssm.layers.inputs import Tokens
from delayssm.layers.layer import DS4D, S4D
from delayssm.layers.norms import BatchNorm
from delayssm.system.memory import History, Rings
from delayssm.system.state import State, States, Streams

if TYPE_CHECKING:
    from delayssm.backends.numba_decode import BlockTensors, HeadTensors, Program


S = TypeVar("S", bound=Streams)
#: What a decoder does in place of a stack, or of a model around it.
_METHODS = "forward", "stream", "step", "_logits", "_answer", "_normalise"


class Steps(Protocol[S]):
    """A model that can be decoded."""

    def step(self, x: Tensor, state: S) -> tuple[Tensor, S]:
        """Return the output for one token per row, and the state after it."""


class Decoder(Generic[S]):
    """A model bound to its streams and to the parameters as they were when it was made: the fastest way to go on.

    decoder = model.decoder(state)
    y = decoder(x)  # what model.step(x, state) returns
    decoder.state  # the streams as they are now, to save, select from, or continue in another way

    Streams advance in place. Make another decoder when parameters have changed. Decoders of different streams can run
    side by side in several threads.
    """

    def __init__(self, model: Steps[S], state: S) -> None:
        self._model, self._state = model, state

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs for one token per row: vectors (B, H) or tokens (B,), as the model takes them."""
        y, self._state = self._model.step(x, self._state)
        return y

    @property
    def state(self) -> S:
        """Streams as they are now."""
        return self._state

    @property
    def position(self) -> Tensor:
        """Tokens that each stream has seen, (B,) int64."""
        return self._state.position


class CompiledDecoder(Decoder[States]):
    """A decoder that makes one compiled call."""

    def __init__(self, model: Steps[States], state: States, program: Program) -> None:
        super().__init__(model, state)
        self._program = program
        self._usages = state.usages()
        self._advances = sum(usage.advances for usage in self._usages)
        self._dtype = torch.int64 if len(program.takes) == 1 else torch.float32

    def __reduce__(self) -> tuple[Any, ...]:
        return bind, (self._model, self.state)  # a copy of the program would point to the memory of this one

    def __call__(self, x: Tensor) -> Tensor:
        if x.dtype in (torch.int32, torch.int16, torch.uint8, torch.int8) and self._dtype == torch.int64:
            x = x.long()
        if x.dtype != self._dtype or x.shape != self._program.takes or x.device.type != "cpu":
            raise ValueError(
                f"this decoder takes {self._dtype} of shape {self._program.takes} on the CPU, "
                f"not {x.dtype} of shape {tuple(x.shape)} on {x.device}"
            )
        if sum([usage.advances for usage in self._usages]) != self._advances:
            raise RuntimeError(
                "other calls have advanced these streams; make a new decoder from the state they returned"
            )
        y = torch.empty(self._program.gives, dtype=torch.float32, device="cpu")
        if not self._program.run(x.contiguous(), y):
            self._state.parts[0].require_room(1)
        self._advances += len(self._usages)
        for usage in self._usages:
            usage.advance(1)
        return y

    @property
    def state(self) -> States:
        return self._state.current()


@torch.no_grad()
def bind(model: Any, state: States) -> Decoder[States]:
    """Return the compiled decoder of a model where there is one, and else the one that calls its `step`."""
    check_state(state, States)
    state.require_unspent()
    program = _program(model, state)
    return Decoder(model, state) if program is None else CompiledDecoder(model, state, program)


def _program(model: Any, state: States) -> Program | None:
    """Return the compiled call; None unless it knows all that the model consists of, down to the last tensor."""
    if choice("cpu") != "numba" or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return None
    if any(_is_watched(module) for module in model.modules()):
        return None
    stack = getattr(model, "backbone", model)
    if not (is_original(model) and is_original(stack)):
        return None
    head = None if stack is model else _head(model)
    if (stack is not model and head is None) or len(stack.blocks) != len(state.parts):
        return None
    blocks = [_block(block, part) for block, part in zip(stack.blocks, state.parts, strict=True)]
    known = [block for block in blocks if block is not None]
    if len(known) != len(blocks):
        return None
    from delayssm.backends.numba_decode import Program

    return Program(known, state.max_length, head)


def is_original(module: nn.Module) -> bool:
    """Return whether a module does what this package says, with no method replaced by a subclass or in itself."""
    names = [name for name in _METHODS if hasattr(module, name)]
    return all(
        name not in module.__dict__ and getattr(type(module), name).__module__.startswith("delayssm.") for name in names
    )


def _is_watched(module: nn.Module) -> bool:
    """Return whether someone watches a module, or has changed what it does."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)


def _plain(tensors: Iterable[Tensor | None], shapes: Iterable[tuple[int, ...]]) -> bool:
    """Return whether all tensors are there, float32, on the CPU, contiguous, and of these shapes."""
    return all(
        t is not None and t.shape == shape and t.dtype == torch.float32 and t.device.type == "cpu" and t.is_contiguous()
        for t, shape in zip(tensors, shapes, strict=True)
    )


def _head(model: Any) -> HeadTensors | None:
    """Return what stands around the stack of a `TokenModel`."""
    from delayssm.backends.numba_decode import HeadTensors

    embedding, norm, head, width = model.embedding, model.norm, model.head, model.d_model
    if type(embedding) is not Tokens or type(norm) is not nn.LayerNorm or type(head) is not nn.Linear:
        return None
    tensors = [embedding.weight, norm.weight, norm.bias, head.weight]
    shapes = [(embedding.num_embeddings, width), (width,), (width,), (head.out_features, width)]
    bias = head.bias
    if not _plain(tensors, shapes) or not (bias is None or _plain([bias], [(head.out_features,)])):
        return None
    if embedding.max_norm is not None:  # it changes its weights
        return None
    return HeadTensors(
        embedding.weight.detach(), norm.eps, norm.weight.detach(), norm.bias.detach(), head.weight.detach(),
        None if bias is None else bias.detach(),
    )  # fmt: skip


def _block(block: nn.Module, state: State) -> BlockTensors | None:
    """Return one block with its memory, after making sure that the state belongs to it."""
    from delayssm.backends.numba_decode import BlockTensors, HistoryTensors, RingTensors

    if type(block) is not Block or type(block.layer) not in (S4D, DS4D):
        return None
    layer, norm, width = block.layer, block.norm, block.d_model
    assert isinstance(layer, S4D | DS4D)
    ssm, linear = layer.ssm, layer.linear
    if type(ssm) not in (DiagonalSSM, DelaySSM) or type(linear) is not nn.Linear:
        return None
    if type(norm) is not nn.LayerNorm and (type(norm) is not BatchNorm or norm.training):
        return None
    if layer.training and layer.dropout:
        return None
    mean, variance = (norm.running_mean, norm.running_var) if isinstance(norm, BatchNorm) else (None, None)
    tensors: list[Tensor | None] = [norm.weight, norm.bias, linear.weight, linear.bias, ssm.D]
    shapes: list[tuple[int, ...]] = [(width,), (width,), (2 * width, width), (2 * width,), (width,)]
    if isinstance(norm, BatchNorm):
        tensors, shapes = [*tensors, mean, variance], [*shapes, (width,), (width,)]
    if not _plain(tensors, shapes):
        return None
    memory = state.memory
    if isinstance(memory, History):
        response = ssm.response_for(state)
        inside: RingTensors | HistoryTensors = HistoryTensors(
            memory.values, response.near, response.levels, response.far, lambda: ssm.far_response(memory).far
        )
    else:
        assert isinstance(memory, Rings)
        constants = ssm.constants_for(state)._asdict()
        inside = RingTensors(**constants, D=ssm.D.detach(), h=memory.h, feedback=memory.feedback)
    return BlockTensors(
        prenorm=block.prenorm,
        eps=norm.eps,
        gain=norm.weight.detach(),
        shift=norm.bias.detach(),
        mean=mean,
        variance=variance,
        ssm=inside,
        weight=linear.weight.detach(),
        bias=linear.bias.detach(),
        position=state.position,
    )
