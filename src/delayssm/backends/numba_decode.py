"""A token through a whole model in one compiled call. The loops are in `numba_recurrence`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

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


@dataclass(frozen=True)
class Head:
    """What turns tokens into vectors, and vectors into logits."""

    embedding: Tensor
    eps: float
    gain: Tensor
    shift: Tensor
    weight: Tensor


class Decoder:
    """Blocks as the compiled loop takes them: sizes, and the addresses of what it reads and writes.

    Addresses stay valid as long as nobody else replaces the memory behind a tensor; tensors are kept alive here.
    """

    def __init__(self, blocks: Sequence[BlockTensors]) -> None:
        self._alive: list[Tensor] = []
        self._program = np.array([self._entry(block) for block in blocks])
        self._eps = np.array([block.eps for block in blocks])
        batch, width, _, modes = blocks[0].h.shape
        self._threads = threads() if batch * width * modes >= _PARALLEL_MODES else 1
        self._position = blocks[0].position.numpy()
        self._room = np.empty((2, batch, width), dtype=np.float32)
        self._x = np.empty((batch, width), dtype=np.float32)
        self._scratch = np.empty((self._threads, numba_recurrence.SCRATCH))

    def run(self, x: Tensor) -> None:
        """x (B, H) becomes the output of the last block; the states advance."""
        arguments = (self._program, self._eps, x.numpy(), *self._room, self._scratch)
        run(numba_recurrence.decode, self._threads, *arguments)

    def run_tokens(self, tokens: Tensor, head: Head, logits: Tensor) -> None:
        """tokens (B,) int64 -> logits (B, V); the states advance."""
        tensors = (head.embedding, head.gain, head.shift, head.weight)
        arguments = (self._program, self._eps, self._x, *self._room, self._scratch)
        arrays = tuple(t.detach().numpy() for t in tensors)
        run(numba_recurrence.decode_tokens, self._threads, tokens.numpy(), *arrays, head.eps, logits.numpy(), *arguments)

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
