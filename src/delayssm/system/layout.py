"""Which memory each channel of a stream has, and where it lies in the tensors.

The recurrence needs, k tokens later, what a state feeds back: f_(t+k) = mu [(1 - alpha) h_t + alpha h_(t-1)].

Ring: keep it. k slots, f_t in slot t mod k. Enough for ever.

Cascade: compute it again from the past. Let s^(j)_t = h_(t-jk). Each copy follows the same recurrence, driven by the
input of j k steps ago and fed back by the next copy:

    s^(j)_t = lam s^(j)_(t-1) + mu [(1 - alpha) s^(j+1)_t + alpha s^(j+1)_(t-1)] + b x_(t-jk),   s^(j) = 0 while t < jk.

A stream of at most T tokens has copies j = 1..(T-1)//k, and needs its first T - k inputs: those after them are not
heard again. The copies are moved BLOCK tokens at a time, so BLOCK slots hold the feedback of the next tokens; a block
of channel h begins where t mod BLOCK = h mod BLOCK, so that every token has its share of the work.

Exact, both: the same recurrence in the same arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from delayssm.backends import BLOCK, COPY_COUNT, INPUT_COUNT, SLOT_COUNT


@dataclass(frozen=True)
class Layout:
    """The memory of H channels with n stored modes each."""

    k: Tensor  # (H,) int64: the delays that it is for; 0 for none
    table: Tensor  # (H, 6) int64: its columns are FIRST_SLOT, SLOT_COUNT, ... of `delayssm.backends`
    modes: int
    dtype: torch.dtype
    max_length: int | None

    @staticmethod
    def of(k: Tensor, modes: int, dtype: torch.dtype, max_length: int | None) -> Layout:
        """Choose the smaller memory for each channel; without a bound on the length of streams only a ring is exact."""
        slots, copies, inputs = k.clone(), torch.zeros_like(k), torch.zeros_like(k)
        if max_length is not None:
            ring, cascade = _bytes(k, modes, dtype, max_length)
            chosen = (cascade < ring) & (k >= BLOCK)
            slots = torch.where(chosen, BLOCK, slots)
            copies = torch.where(chosen, (max_length - 1) // k.clamp(min=1), 0)
            inputs = torch.where(chosen, max_length - k, 0)
            for column in (slots, copies, inputs):
                column[k >= max_length] = 0  # nothing comes back within the stream
        columns = [column for counts in (slots, copies, inputs) for column in (counts.cumsum(0) - counts, counts)]
        return Layout(k, torch.stack(columns, 1).contiguous(), modes, dtype, max_length)

    @property
    def totals(self) -> tuple[int, int, int]:
        """Numbers of slots, copies and inputs of all channels together."""
        slots, copies, inputs = (int(self.table[:, column].sum()) for column in (SLOT_COUNT, COPY_COUNT, INPUT_COUNT))
        return slots, copies, inputs

    def to(self, device: torch.device | str) -> Layout:
        """Return the layout with its tensors on a device."""
        return Layout(self.k.to(device), self.table.to(device), self.modes, self.dtype, self.max_length)

    def describe(self) -> str:
        """Return a description: how many channels have which memory, and why."""
        slots, copies = self.table[:, SLOT_COUNT].cpu(), self.table[:, COPY_COUNT].cpu()
        k, T = self.k.cpu(), self.max_length
        ring, cascade, none = (slots > 0) & (copies == 0), copies > 0, slots == 0
        ring_bytes, cascade_bytes = _bytes(k, self.modes, self.dtype, T or 1)
        lines = []
        if bool(ring.any()):
            why = "endless" if T is None else "smaller than a cascade"
            lines.append(_line("ring", k[ring], ring_bytes[ring], f"a slot for each step of the delay: {why}"))
        if bool(cascade.any()):
            saved = int(ring_bytes[cascade].sum()) / int(cascade_bytes[cascade].sum())
            why = f"{int(copies.sum()):,} copies of the state and past inputs: {saved:.1f} times smaller than rings"
            lines.append(_line("cascade", k[cascade], cascade_bytes[cascade], why))
        if bool(none.any()):
            late = bool((k[none] > 0).any())
            why = f"a delay of {T:,} steps or more is not heard within the stream" if late else "no delayed branch"
            lines.append(_line("none", k[none], torch.zeros(1), why))
        return "\n".join(lines)


def _bytes(k: Tensor, modes: int, dtype: torch.dtype, max_length: int) -> tuple[Tensor, Tensor]:
    """Return the bytes that a ring and a cascade would take, per channel of one stream."""
    state, number = 2 * modes, dtype.itemsize
    copies = (max_length - 1) // k.clamp(min=1)
    return k * state * number, (BLOCK * state + max_length - k) * number + copies * state * 8


def _line(name: str, k: Tensor, size: Tensor, why: str) -> str:
    many = "channel" if len(k) == 1 else "channels"
    delays = f"{int(k.min()):,}" if k.min() == k.max() else f"{int(k.min()):,} to {int(k.max()):,}"
    return f"{name}: {len(k)} {many}, delay {delays}, {int(size.sum()):,} bytes a stream ({why})"
