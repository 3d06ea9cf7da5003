"""One compiled call for a token through a whole stack, in place of dozens of small operations.

Between two tokens the caches are full of coefficients, so every access to a Python object goes to main memory. Hence
there are two ways to the same compiled call: the `step` of a model first makes sure that no parameter has changed,
which takes about a third of its time; a `Decoder` is bound to the parameters as they were when it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from delayssm.backends import choice
from delayssm.layers.block import Block
from delayssm.layers.inputs import Tokens
from delayssm.layers.layer import DS4D, S4D
from delayssm.layers.norms import BatchNorm
from delayssm.layers.ssm import DelaySSM, DiagonalSSM
from delayssm.system.state import State, States

if TYPE_CHECKING:
    from delayssm.backends.numba_decode import BlockTensors, Program

#: Embedding, norm and head of a model for tokens.
Around = tuple[Tokens, nn.LayerNorm, nn.Linear] | tuple[()]

#: Modules whose arithmetic the compiled call knows. A subclass may do something else.
_KNOWN = {Tokens, nn.LayerNorm, nn.Linear, BatchNorm, DiagonalSSM, DelaySSM}


class Decoder:
    """A model bound to its streams: the fastest way to go on token by token.

    decoder = model.decoder(state)
    y = decoder(x)  # what model.step(x, state) returns; the next call writes to the same memory
    decoder.state  # the streams as they are now, to save, select from, or continue in another way

    Streams advance in place. Parameters must not change meanwhile; make another decoder when they have.
    """

    def __init__(self, step: Callable[[Tensor, States], tuple[Tensor, States]], state: States) -> None:
        """Bind a model without a compiled call by its own `step`."""
        self._step, self._state = step, state

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs for one token per row: vectors (B, H) or tokens (B,), as the model takes them."""
        y, self._state = self._step(x, self._state)
        return y

    @property
    def state(self) -> States:
        """Streams as they are now."""
        return self._state


class CompiledDecoder(Decoder):
    """A decoder that makes the compiled call alone."""

    def __init__(self, program: Program, state: States) -> None:
        state.require_unspent()
        self._program, self._state = program, state
        self._usages = state.usages()
        self._advances = sum(usage.advances for usage in self._usages)
        self._out = torch.empty(program.gives)

    def __call__(self, x: Tensor) -> Tensor:
        if sum([usage.advances for usage in self._usages]) != self._advances:
            raise RuntimeError(
                "other calls have advanced these streams; make a new decoder from the state they returned"
            )
        if not self._program.run(x, self._out):
            self._state.parts[0].require_room(1)
        self._advances += len(self._usages)
        for usage in self._usages:
            usage.advance(1)
        return self._out

    @property
    def state(self) -> States:
        return self._state.current()


def program(blocks: nn.ModuleList, state: States, around: Around = ()) -> Program | None:
    """Return the compiled call for this state, None where only the modules can advance it. The state keeps it."""
    if choice("cpu") != "numba" or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return None
    signature = _signature(blocks, around)
    if signature is None:
        return None
    state.require_unspent()
    if state.program is None or state.program[0] != signature:
        known = [block for block in blocks if isinstance(block, Block)]
        if len(known) != len(state.parts) or not _is_supported(known, around):
            return None
        from delayssm.backends.numba_decode import Program

        tensors = [_tensors(block, part) for block, part in zip(known, state.parts, strict=True)]
        state.program = signature, Program(tensors, state.max_length, around)
    made: Program = state.program[1]
    return made


def step(program: Program, x: Tensor, state: States, out: Tensor | None) -> tuple[Tensor, States]:
    """Return the output for one token per row, and the state after it, which the memory now belongs to."""
    y = torch.empty(program.gives) if out is None else out
    if not program.run(x, y):
        state.parts[0].require_room(1)
    for part in state.parts:
        part.usage.advance(1)
    return y, state.current()


def _signature(blocks: nn.ModuleList, around: Around) -> list[object] | None:
    """Return a value that changes when a parameter is replaced, moved or written to; None for unknown modules."""
    modules: list[Any] = [*around]
    signature: list[object] = []
    for block in blocks._modules.values():
        if type(block) is not Block or type(block._modules["layer"]) not in (S4D, DS4D):
            return None
        signature.append(block.__dict__["prenorm"])
        inside: dict[str, Any] = block._modules["layer"].__dict__["_modules"]
        modules += (block._modules["norm"], inside["ssm"], inside["linear"])
    tensors: list[Tensor] = []
    for module in modules:
        inside = module.__dict__  # several times faster than asking for attributes
        if type(module) not in _KNOWN or inside["_forward_hooks"] or inside["_forward_pre_hooks"]:
            return None
        signature.append(inside["training"])
        tensors += [t for t in inside["_parameters"].values() if t is not None]
        tensors += [t for t in inside["_buffers"].values() if t is not None]
    signature += [id(t) for t in tensors]
    signature += [t.data_ptr() for t in tensors]
    try:
        signature += [t._version for t in tensors]
    except RuntimeError:
        return None  # made in inference mode: no version to tell a change by
    return signature


def _is_supported(blocks: Sequence[Block], around: Around) -> bool:
    """Return whether all is in float32 on a CPU and contiguous, and nothing differs from chunk to chunk."""
    for block in blocks:
        if block.training and (isinstance(block.norm, BatchNorm) or getattr(block.layer, "dropout", False)):
            return False
    return all(
        p.device.type == "cpu" and p.dtype == torch.float32 and p.is_contiguous()
        for module in (*blocks, *around)
        for p in module.parameters()
    )


def _tensors(block: Block, state: State) -> BlockTensors:
    from delayssm.backends.numba_decode import BlockTensors

    assert isinstance(block.layer, (S4D, DS4D))
    norm, ssm, linear = block.norm, block.layer.ssm, block.layer.linear
    batch_norm = norm if isinstance(norm, BatchNorm) else None
    return BlockTensors(
        **ssm.constants_for(state)._asdict(),
        D=ssm.D,
        prenorm=block.prenorm,
        eps=norm.eps,
        gain=norm.weight,
        shift=norm.bias,
        mean=batch_norm.running_mean if batch_norm else None,
        variance=batch_norm.running_var if batch_norm else None,
        weight=linear.weight,
        bias=linear.bias,
        layout=state.layout.table,
        **state.tensors(),
    )
