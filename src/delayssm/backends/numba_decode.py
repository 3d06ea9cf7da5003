"""One token through a whole model in one compiled call. The loops are in `numba_recurrence`."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numba
import torch
from torch import Tensor, nn

from delayssm.backends import numba_recurrence
from delayssm.backends.numba_cpu import rows

#: One of numba's threading layers aborts the process when two threads enter it at once.
_one_at_a_time = threading.Lock()

#: Modes in all channels and rows below which a second thread costs more than it brings.
_PARALLEL_MODES = 500


@dataclass(frozen=True)
class BlockTensors:
    """Parameters and state of one residual block; the parameters are float32."""

    lam: Tensor
    mu: Tensor
    b: Tensor
    c: Tensor
    k: Tensor
    alpha: Tensor
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
        max_length: int | None,
        around: tuple[nn.Embedding, nn.LayerNorm, nn.Linear] | tuple[()] = (),
    ) -> None:
        self._alive: list[Tensor] = []
        batch, width, _, modes = blocks[0].h.shape
        self._threads = (
            min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
            if batch * width * modes >= _PARALLEL_MODES
            else 1
        )
        self._vocabulary = len(around[0].weight) if around else 0
        self.takes = (batch,) if around else (batch, width)
        self.gives = (batch, self._vocabulary) if around else (batch, width)

        program = torch.tensor([self._block(block) for block in blocks])
        eps = [block.eps for block in blocks] + ([around[1].eps] if around else [0.0])
        room = torch.empty(3, batch, width)
        values: dict[str, Tensor | int] = {
            "blocks": len(blocks),
            "batch": batch,
            "width": width,
            "vocabulary": self._vocabulary,
            "max_length": max_length or 0,
            "parts": self._threads,
            "program": program,
            "eps": torch.tensor(eps, dtype=torch.float64),
            "x": room[0],
            "u": room[1],
            "v": room[2],
            "scratch": torch.empty(self._threads, numba_recurrence.SCRATCH, dtype=torch.float64),
        }
        if around:
            embedding, norm, head = around
            values |= {"embedding": embedding.weight, "head": head.weight}
            values |= {"final_gain": norm.weight, "final_shift": norm.bias}
        self._model = torch.tensor([self._number(values.get(name, 0)) for name in numba_recurrence.MODEL])

    def run(self, x: Tensor, out: Tensor) -> bool:
        """Turn vectors (B, H) into (B, H), or tokens (B,) int64 into logits (B, V); the states advance.

        Return False if a stream has reached its greatest length; the states are then as before.
        """
        dtype = torch.int64 if self._vocabulary else torch.float32
        if x.shape != self.takes or x.dtype != dtype:
            raise ValueError(f"expected {dtype} of shape {self.takes}, not {x.dtype} of shape {tuple(x.shape)}")
        if out.shape != self.gives or out.dtype != torch.float32 or not out.is_contiguous():
            raise ValueError(f"out must be contiguous torch.float32 of shape {self.gives}, not {tuple(out.shape)}")
        if self._vocabulary:
            x = x.contiguous()
        else:
            out.copy_(x)
        addresses = self._model.data_ptr(), x.data_ptr(), out.data_ptr()
        with _one_at_a_time:
            numba.set_num_threads(self._threads)
            status: int = numba_recurrence.decode(*addresses)
        if status >= 0:
            raise ValueError(f"token {int(x[status])} is not a number from 0 to {self._vocabulary - 1}")
        return status != numba_recurrence.FULL

    def _block(self, block: BlockTensors) -> list[int]:
        """Return one block, in the order of `numba_recurrence.FIELDS`."""
        values: dict[str, Tensor | int] = {
            "modes": block.h.shape[-1],
            "slots": block.feedback.shape[1],
            "copied": block.copies.shape[1],
            "kept": block.inputs.shape[1],
            "prenorm": int(block.prenorm),
            "batch_norm": int(block.mean is not None),
            "coefs": rows(block.lam, block.mu, block.b, block.c),
            "k": block.k,
            "alpha": block.alpha,
            "D": block.D,
            "layout": block.layout,
            "state": block.h,
            "feedback": block.feedback,
            "copies": block.copies,
            "inputs": block.inputs,
            "position": block.position,
            "gain": block.gain,
            "shift": block.shift,
            "mean": 0 if block.mean is None else block.mean,
            "variance": 0 if block.variance is None else block.variance,
            "weight": block.weight,
            "bias": block.bias,
        }
        return [self._number(values[name]) for name in numba_recurrence.FIELDS]

    def _number(self, value: Tensor | int) -> int:
        """Return a size as it is, and a tensor as its address."""
        if isinstance(value, int):
            return value
        assert value.is_contiguous()
        self._alive.append(value)
        return value.data_ptr()
