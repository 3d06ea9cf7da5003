"""A token through a whole model in one compiled call. The loops are in `numba_recurrence`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from delayssm.backends import numba_recurrence
from delayssm.backends.numba_cpu import rows, run, threads

#: Modes in all channels and rows below which a second thread costs more than it brings.
_PARALLEL_MODES = 2_000


@dataclass(frozen=True)
class BlockTensors:
    """One residual block: its parameters, in float32, and its state."""

    system: Sequence[Tensor]
    D: Tensor
    prenorm: bool
    eps: float
    gain: Tensor
    shift: Tensor
    mean: Tensor | None  # of a batch norm
    variance: Tensor | None
    weight: Tensor
    bias: Tensor
    layout: Tensor
    h: Tensor
    feedback: Tensor
    copies: Tensor
    inputs: Tensor
    position: Tensor


class Program:
    """A model as the compiled loop takes it: sizes, and the addresses of what it reads and writes.

    Addresses stay valid because the tensors are kept here; whoever replaces the memory of one needs another program.
    """

    def __init__(
        self,
        blocks: Sequence[BlockTensors],
        around: tuple[nn.Embedding, nn.LayerNorm, nn.Linear] | tuple[()] = (),
    ) -> None:
        self._alive: list[Tensor] = []
        batch, width, _, modes = blocks[0].h.shape
        self._threads = threads() if batch * width * modes >= _PARALLEL_MODES else 1
        self._blocks = (
            np.array([self._entry(block) for block in blocks]),
            np.array([block.eps for block in blocks]),
            *np.empty((2, batch, width), dtype=np.float32),
            np.empty((self._threads, numba_recurrence.SCRATCH)),
        )
        self.takes: tuple[int, ...] = (batch, width)  # shapes
        self.gives = (batch, width)
        self._around: tuple[Any, ...] = ()
        if around:
            embedding, norm, head = around
            weights = (embedding.weight, norm.weight, norm.bias, head.weight)
            self._alive += weights
            arrays = (t.detach().numpy() for t in weights)
            self._around = (*arrays, norm.eps, np.empty((batch, width), dtype=np.float32))
            self.takes, self.gives = (batch,), (batch, len(head.weight))

    def run(self, x: Tensor, out: Tensor) -> None:
        """Vectors (B, H) -> (B, H), or tokens (B,) int64 -> logits (B, V); the states advance."""
        dtype = torch.int64 if self._around else torch.float32
        for t, shape, kind in ((x, self.takes, dtype), (out, self.gives, torch.float32)):
            if t.shape != shape or t.dtype != kind or not t.is_contiguous():
                raise ValueError(
                    f"expected {kind} of shape {shape} in one piece, not {t.dtype} of shape {tuple(t.shape)}"
                )
        if not self._around:
            run(numba_recurrence.decode, self._threads, out.copy_(x).numpy(), *self._blocks)
            return
        arguments = (x.numpy(), out.numpy(), *self._around, *self._blocks)
        wrong = run(numba_recurrence.decode_tokens, self._threads, *arguments)
        if wrong >= 0:
            raise ValueError(f"token {int(x[wrong])} is not a number from 0 to {len(self._around[0]) - 1}")

    def _entry(self, block: BlockTensors) -> list[int]:
        """The row of the program for one block, in the order of `numba_recurrence.FIELDS`."""
        sizes = {
            "modes": block.h.shape[-1],
            "slots": block.feedback.shape[1],
            "copied": block.copies.shape[1],
            "kept": block.inputs.shape[1],
            "prenorm": int(block.prenorm),
            "batch_norm": int(block.mean is not None),
        }
        tensors = {
            "coefs": rows(block.system),
            "k": block.system[4],
            "alpha": block.system[5],
            "D": block.D,
            "layout": block.layout,
            "state": block.h,
            "feedback": block.feedback,
            "copies": block.copies,
            "inputs": block.inputs,
            "position": block.position,
            "gain": block.gain,
            "shift": block.shift,
            "mean": block.gain if block.mean is None else block.mean,
            "variance": block.gain if block.variance is None else block.variance,
            "weight": block.weight,
            "bias": block.bias,
        }
        found = []
        for field in numba_recurrence.FIELDS:
            if field in sizes:
                found.append(sizes[field])
            else:
                t = tensors[field]
                assert t.is_contiguous(), field
                self._alive.append(t)
                found.append(t.data_ptr())
        return found
