"""One compiled call for a token through blocks one after another, in place of dozens of small operations.

This file decides where that is possible, and notices when what it was made from has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from delayssm.backends import backend
from delayssm.layers.block import BatchNorm, Block
from delayssm.layers.layer import DS4D, S4D
from delayssm.layers.streaming import Streaming
from delayssm.system.state import State, States

if TYPE_CHECKING:
    from delayssm.backends.numba_decode import BlockTensors, Decoder


def decoder(blocks: Sequence[Streaming[State]], state: States) -> Decoder | None:
    """What advances this state by one token, None where only the modules can. It is kept with the state."""
    if backend() != "numba" or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return None
    if len(blocks) != len(state.parts) or not all(map(_is_plain, blocks)):
        return None
    signature = [value for block in blocks for value in _signature(block)]
    if state.program is None or state.program[0] != signature:
        if not all(map(_is_supported, blocks)):
            return None
        from delayssm.backends.numba_decode import Decoder

        tensors = [_tensors(block, part) for block, part in zip(blocks, state.parts, strict=True)]
        state.program = signature, Decoder(tensors)
    state.require_unspent()
    state.parts[0].require_room(1)
    found: Decoder = state.program[1]
    return found


def after(state: States) -> States:
    """The state after a token: the same memory, which now belongs to it."""
    return States(tuple(part.after_a_token() for part in state.parts), state.model, state.program)


def _leaves(block: nn.Module) -> tuple[nn.Module | None, ...]:
    modules = block._modules
    layer = modules["layer"]
    assert layer is not None
    return modules["norm"], layer._modules["ssm"], layer._modules["linear"]


def _is_plain(block: nn.Module) -> bool:
    """Made of this package's modules, as they are, without hooks."""
    if type(block) is not Block or type(block._modules["layer"]) not in (S4D, DS4D):
        return False
    norm, ssm, linear = _leaves(block)
    if type(norm) not in (nn.LayerNorm, BatchNorm) or type(linear) is not nn.Linear:
        return False
    return not any(m._forward_hooks or m._forward_pre_hooks for m in (norm, ssm, linear) if m is not None)


def _is_supported(block: nn.Module) -> bool:
    """In float32 on a CPU, contiguous, with parameters whose changes can be noticed."""
    if block.training and (isinstance(block.norm, BatchNorm) or block.layer.dropout):  # type: ignore[union-attr]
        return False
    return all(
        p.device.type == "cpu" and p.dtype == torch.float32 and p.is_contiguous() and not p.is_inference()
        for p in block.parameters()
    )


def _signature(block: nn.Module) -> list[object]:
    """Changes whenever a parameter is replaced, moved or written to."""
    found: list[object] = [block.training, block.__dict__["prenorm"]]
    for module in _leaves(block):
        assert module is not None
        found += [module.training]
        for values in (module._parameters.values(), module._buffers.values()):
            for p in values:
                if p is not None:
                    found += [id(p), p.data_ptr(), p._version]
    return found


def _tensors(block: nn.Module, state: State) -> BlockTensors:
    from delayssm.backends.numba_decode import BlockTensors

    assert isinstance(block, Block) and isinstance(block.layer, (S4D, DS4D))
    norm, ssm, linear = block.norm, block.layer.ssm, block.layer.linear
    batch_norm = norm if isinstance(norm, BatchNorm) else None
    return BlockTensors(
        system=ssm.constants_for(state),
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
