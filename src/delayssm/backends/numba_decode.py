"""A model as the compiled loop for one token takes it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from delayssm.backends import HISTORY_PADDED, numba_history, numba_token
from delayssm.backends.numba_cpu import coefficient_rows
from delayssm.backends.numba_vectors import VECTOR_BYTES
from delayssm.backends.threads import openmp

#: Multiply-adds in a token of one block below which a second thread is not worth it: it has to wait for the first one
#: several times, and for a core that others keep busy.
_PARALLEL_WORK = 200_000

#: What is computed with, whatever torch's defaults are.
_KIND: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}


@dataclass(frozen=True)
class RingTensors:
    """An SSM with its rings."""

    lam: Tensor
    mu: Tensor
    b: Tensor
    c: Tensor
    k: Tensor
    alpha: Tensor
    D: Tensor
    h: Tensor
    feedback: Tensor


@dataclass(frozen=True)
class HistoryTensors:
    """An SSM with its history. If the far part of the response is empty, `find_far` returns it when it is needed."""

    values: Tensor
    near: Tensor
    levels: Tensor
    far: Tensor
    find_far: Callable[[], Tensor]


@dataclass(frozen=True)
class BlockTensors:
    """A residual block; the parameters are float32. A batch norm has a mean and a variance."""

    prenorm: bool
    eps: float
    gain: Tensor
    shift: Tensor
    mean: Tensor | None
    variance: Tensor | None
    ssm: RingTensors | HistoryTensors
    weight: Tensor
    bias: Tensor
    position: Tensor


@dataclass(frozen=True)
class HeadTensors:
    """What stands around the blocks of a model for tokens."""

    embedding: Tensor
    eps: float
    gain: Tensor
    shift: Tensor
    weight: Tensor
    bias: Tensor | None


class Program:
    """The records of a model, the room that a token needs, and all tensors that are read or written.

    The tensors are kept here, so their memory stays where it is, whatever becomes of the modules that they came from.
    """

    def __init__(self, blocks: Sequence[BlockTensors], max_length: int | None, head: HeadTensors | None) -> None:
        self._alive: list[Any] = []
        self._ssms = [block.ssm for block in blocks]
        batch, channels = len(blocks[0].position), len(blocks[0].gain)
        width = -(-channels // HISTORY_PADDED) * HISTORY_PADDED
        slots = max(ssm.values.shape[1] if isinstance(ssm, HistoryTensors) else 0 for ssm in self._ssms)
        work_size = 2 * slots * VECTOR_BYTES // 4
        team = openmp() if batch * channels * channels >= _PARALLEL_WORK else None
        self._threads = threads = 1 if team is None else torch.get_num_threads()
        self.takes = (batch, channels) if head is None else (batch,)
        self.gives = (batch, channels if head is None else len(head.weight))

        self._blocks = np.zeros(len(blocks), numba_token.BLOCK)
        for record, block in zip(self._blocks, blocks, strict=True):
            self._fill_block(record, block, width)
        self._model = np.zeros(1, numba_token.MODEL)
        values: dict[str, Any] = {
            "count": len(blocks),
            "blocks": self._blocks,
            "batch": batch,
            "channels": channels,
            "width": width,
            "max_length": max_length or 0,
            "threads": threads,
            "stream": torch.zeros(batch, width, **_KIND),
            "normed": torch.zeros(threads, batch, width, **_KIND),
            "bent": torch.zeros(batch, width, **_KIND),
            "mixed": torch.zeros(batch, 2 * width, **_KIND),
            "work": torch.empty(threads, work_size, **_KIND),
            "work_size": work_size,
            "zeros": torch.zeros(VECTOR_BYTES // 4, **_KIND),
        }
        if head is not None:
            values |= {"tokens": len(head.embedding), "outputs": len(head.weight), "embedding": head.embedding}
            values |= {"eps": head.eps, "gain": head.gain, "shift": head.shift, "head": head.weight}
            values |= {} if head.bias is None else {"head_bias": head.bias}
        if team is not None:
            values |= {"team_member": numba_token.member(), **team}
        self._fill(self._model[0], values)
        self._at = self._model.ctypes.data

    def run(self, x: Tensor, out: Tensor) -> bool:
        """Turn vectors (B, H) into (B, H), or tokens (B,) int64 into logits (B, V); the states advance.

        Return False if a stream has reached its greatest length; the states are then as before.
        """
        model = self._model[0]
        model["input"], model["result"] = x.data_ptr(), out.data_ptr()
        model["threads"] = min(self._threads, torch.get_num_threads())
        status: int = numba_token.decode(self._at)
        if status == numba_token.FAR:
            before = self._blocks["far"].copy()
            found = [ssm.find_far() if isinstance(ssm, HistoryTensors) else None for ssm in self._ssms]
            for record, far in zip(self._blocks, found, strict=True):
                record["far"] = 0 if far is None else far.data_ptr()
            status = numba_token.decode(self._at)
            self._blocks["far"] = before
        if status >= 0:
            raise ValueError(f"token {int(x[status])} is not a number from 0 to {model['tokens'] - 1}")
        return status != numba_token.FULL

    def _fill_block(self, record: Any, block: BlockTensors, width: int) -> None:
        ssm, half = block.ssm, len(block.bias) // 2
        bias = torch.cat([F.pad(part.detach(), (0, width - half)) for part in (block.bias[:half], block.bias[half:])])
        values: dict[str, Any] = {
            "prenorm": int(block.prenorm),
            "batch_norm": int(block.mean is not None),
            "eps": block.eps,
            "gain": block.gain,
            "shift": block.shift,
            "weight": block.weight,
            "bias": bias,
            "position": block.position,
        }
        if block.mean is not None and block.variance is not None:
            values |= {"mean": block.mean, "variance": block.variance}
        if isinstance(ssm, HistoryTensors):
            counts, radices, offsets, starts, roots = numba_history.rings(ssm.values.shape[1], "float32")
            values |= {
                "history": 1,
                "slots": ssm.values.shape[1],
                "values": ssm.values,
                "near": ssm.near,
                "levels": ssm.levels,
                "level_numbers": ssm.levels.numel(),
                "far": ssm.far if ssm.far.numel() else 0,
                "ring_count": len(counts),
                "ring_counts": counts,
                "ring_radices": radices,
                "ring_columns": radices.shape[1],
                "ring_offsets": offsets,
                "ring_starts": starts,
                "ring_roots": roots,
            }
        else:
            values |= {
                "modes": ssm.h.shape[-1],
                "slots": ssm.feedback.shape[1],
                "coefs": coefficient_rows(ssm.lam, ssm.mu, ssm.b, ssm.c),
                "k": ssm.k,
                "first": ssm.k.cumsum(0) - ssm.k,
                "alpha": ssm.alpha,
                "D": ssm.D,
                "h": ssm.h,
                "feedback": ssm.feedback,
            }
        self._fill(record, values)

    def _fill(self, record: Any, values: dict[str, Any]) -> None:
        """Write numbers as they are, and tensors and arrays as their addresses."""
        for name, value in values.items():
            if isinstance(value, Tensor | np.ndarray):
                self._alive.append(value)
                value = value.data_ptr() if isinstance(value, Tensor) else value.ctypes.data
            record[name] = value
