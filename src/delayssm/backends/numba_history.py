"""The convolution of a signal that arrives piece by piece. See docs/streaming.md for the mathematics.

`values` (B, S, W) is the memory of streams: slot t % S has what is known of output t until token t comes, and from then
on input t. The loops are given its impulse response as `spectra`: (near, levels, far). All arrays of numbers are flat.
"""

import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from delayssm.backends import HISTORY_NEAR as NEAR
from delayssm.backends.numba_compile import Array, Arrays, compiled, fragment
from delayssm.backends.numba_convolution import leaf_product
from delayssm.backends.numba_fft import enter, first, leave, transform, transform_back
from delayssm.backends.numba_vectors import VECTOR_BYTES, Complex, Index, Memory, Real, repeat, vectorised
from delayssm.backends.ring import END, LEAF, Ring
from delayssm.backends.scratch import work_arrays
from delayssm.backends.threads import parts_for, run


def respond(kernel: Tensor, slots: int) -> tuple[Tensor, Tensor]:
    """Return the first samples as they are, and the transforms for U = NEAR, 2 NEAR, ..., S/2, one after another."""
    sizes = [NEAR << i for i in range((slots // NEAR).bit_length() - 1)]
    levels = [respond_far(kernel, size) for size in sizes]
    return kernel[:NEAR].contiguous(), torch.cat(levels) if levels else kernel.new_empty(0)


def respond_far(kernel: Tensor, slots: int) -> Tensor:
    """Return the transform of the first 2 S samples over S: sample t in the real, t + S in the imaginary parts.

    It has 2 S numbers for each vector of channels in turn.
    """
    width = kernel.shape[1]
    out = kernel.new_empty(2 * slots * width)
    ring = Ring.at_least(slots).parts(_name(kernel))
    run(_level, parts_for(out.numel()), kernel.contiguous().view(-1).numpy(), width, slots, ring, out.numpy())
    return out


def advance(
    *, x: Tensor, lengths: Tensor, position: Tensor, values: Tensor, response: tuple[Tensor, Tensor, Tensor],
    max_length: int,
) -> Tensor:  # fmt: skip
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    (_, length, channels), (_, slots, width) = x.shape, values.shape
    parts = parts_for(x.numel() * NEAR)
    work = work_arrays(slots, parts, 2, values.dtype)
    x_, y_, values_ = (t.contiguous().view(-1).numpy() for t in (x, y, values))
    spectra = tuple(t.view(-1).numpy() for t in response)
    memory = values_, slots, width, max_length, spectra, rings(slots, _name(values)), work
    run(_chunk, parts, x_, y_, length, channels, lengths.contiguous().numpy(), position.contiguous().numpy(), *memory)
    return y


def _name(t: Tensor) -> str:
    return str(t.dtype).removeprefix("torch.")


@functools.lru_cache(maxsize=32)
def rings(slots: int, dtype: str) -> tuple[NDArray[Any], ...]:
    """Return the transforms of NEAR, 2 NEAR, ..., S numbers in arrays that have a row for each."""
    made, size = [], NEAR
    while size <= slots:
        made.append(Ring.at_least(size).parts(dtype))
        size *= 2
    counts = np.array([len(radices) for radices, _, _ in made])
    starts = np.cumsum([0, *(len(roots) for _, _, roots in made)])
    radices, offsets = (np.zeros((len(made), counts.max() + 1), np.int64) for _ in range(2))
    for i, (row, places, _) in enumerate(made):
        radices[i, : len(row)], offsets[i, : len(places)] = row, places
    return counts, radices, offsets, starts, np.concatenate([roots for _, _, roots in made])


def _sums(vectors: int) -> Any:
    """Return a function that adds up some vectors of channels at once, so that several sums are under way."""

    @vectorised
    def add_up(
        near: Memory,
        lag: Index,
        values: Memory,
        at: Index,
        width: Index,
        count: Index,
        out: Memory,
        to: Index,
        h: Index,
    ) -> None:
        channels = [h + j * near.lanes for j in range(vectors)]

        def add(i: Index, sums: list[Real]) -> list[Real]:
            k, x = (lag + i * -1) * width, at + i * width
            pairs = ((near.load(near.address(k + c)), values.load(values.address(x + c))) for c in channels)
            return [total + a * b for total, (a, b) in zip(sums, pairs, strict=True)]

        sums = repeat(count, [out.load(out.address(to + c)) for c in channels], add)
        for c, total in zip(channels, sums, strict=True):
            out.store(out.address(to + c), total)

    return add_up


_add_up_4, _add_up_1 = _sums(4), _sums(1)


@vectorised
def _add_imaginary(work: Memory, t: Index, values: Memory, at: Index) -> None:
    values.store(values.address(at), values.load(values.address(at)) + work[t].im)


@vectorised
def _set_imaginary(work: Memory, t: Index, values: Memory, at: Index) -> None:
    values.store(values.address(at), work[t].im)


@vectorised
def _load_real(kernel: Memory, at: Index, scale: Memory, work: Memory, t: Index) -> None:
    sample = kernel.load(kernel.address(at)) * scale.everywhere(0).re
    work[t] = Complex(sample, sample.zero())


@vectorised
def _load_both(kernel: Memory, at: Index, later: Index, scale: Memory, work: Memory, t: Index) -> None:
    factor = scale.everywhere(0).re
    work[t] = Complex(kernel.load(kernel.address(at)) * factor, kernel.load(kernel.address(later)) * factor)


@vectorised
def _unfold(work: Memory, t: Index, half: Index, scale: Memory, out: Memory) -> None:
    """Set vectors t and t + half to the real and the imaginary part of vector t, times a factor."""
    factor = scale.everywhere(0).re
    z = work[t].scaled(factor)
    out[t], out[t + half] = Complex(z.re, z.re.zero()), Complex(z.im, z.re.zero())


@compiled
def _level(part: int, parts: int, kernel: Array, width: int, m: int, ring: Arrays, out: Array) -> None:
    lanes = VECTOR_BYTES // kernel.itemsize
    scale = np.full(2, 1 / m, kernel.dtype)
    for v in range(part, width // lanes, parts):
        work = out[2 * m * lanes * v : 2 * m * lanes * (v + 1)]
        for t in range(m):
            _load_both(kernel, t * width + v * lanes, (t + m) * width + v * lanes, scale, work, t)
        transform(work, m, ring)


@fragment()
def _ring(rings: Arrays, i: int) -> Arrays:
    counts, radices, offsets, starts, roots = rings
    return radices[i, : counts[i]], offsets[i, : counts[i] + 1], roots[starts[i] : starts[i + 1]]


@fragment()
def _convolve(
    values: Array, start: int, width: int, m: int, spectrum: Array, ring: Arrays, work: Array, zeros: Array
) -> None:
    """Set work to the product of m values and a spectrum, transformed back."""
    radices, offsets, roots = ring
    leaves, inner, end = offsets[len(radices)], LEAF * radices[len(radices) - 1], m // END
    for p in range(end):
        first(values, start, width, m, zeros, work, p, end, roots)
    for s in range(0, m, inner):
        enter(work, s, 1, end, ring)
        for leaf in range(s, s + inner, LEAF):
            leaf_product(work, leaf, roots, leaves + leaf // LEAF * (LEAF - 1), spectrum)
        leave(work, s + inner, 0, ring)


@fragment()
def take_token(
    values: Array, slots: int, width: int, row: int, t: int, x: Array, x_at: int, near: Array, out: Array, to: int,
    low: int, high: int,
) -> None:  # fmt: skip
    """Set out to output t of channels low..high-1, multiples of a vector, and keep input t."""
    lanes = VECTOR_BYTES // values.itemsize
    slot, block, i = (row * slots + t % slots) * width, (row * slots + (t - t % NEAR) % slots) * width, t % NEAR
    for h in range(low, high):
        out[to + h] = values[slot + h]
        values[slot + h] = x[x_at + h]
    h = low
    while h + 4 * lanes <= high:
        _add_up_4(near, i, values, block, width, i + 1, out, to, h)
        h += 4 * lanes
    while h < high:
        _add_up_1(near, i, values, block, width, i + 1, out, to, h)
        h += lanes


@fragment()
def pass_on(
    values: Array, slots: int, width: int, row: int, n: int, spectra: Arrays, rings: Arrays, work: Array, zeros: Array,
    low: int, high: int,
) -> None:  # fmt: skip
    """After n tokens, a multiple of NEAR, add what the last U inputs contribute to the next U outputs.

    U is the largest power of two that divides n, or all slots: then the inputs are not needed any more, and their slots
    get the outputs.
    """
    _, levels, far = spectra
    lanes = VECTOR_BYTES // values.itemsize
    m, i = NEAR, 0
    while m < slots and n % (2 * m) == 0:
        m *= 2
        i += 1
    ring = _ring(rings, i)
    before = (row * slots + (n - m) % slots) * width
    after = (row * slots + n % slots) * width
    for h in range(low, high, lanes):
        if m == slots:
            _convolve(values, before + h, width, m, far[2 * m * h : 2 * m * (h + lanes)], ring, work, zeros)
            for t in range(m):
                _set_imaginary(work, t, values, after + t * width + h)
        else:
            at = 2 * (m - NEAR) * width + 2 * m * h
            _convolve(values, before + h, width, m, levels[at : at + 2 * m * lanes], ring, work, zeros)
            for t in range(m):
                _add_imaginary(work, t, values, after + t * width + h)


@fragment()
def _within(h: int, width: int, i: int, spectra: Arrays, rings: Arrays, scale: Array, work: Array, out: Array) -> None:
    """Set out to the transform of the first m = NEAR 2^i samples of the response, over m."""
    near, levels, _ = spectra
    lanes = VECTOR_BYTES // near.itemsize
    m = NEAR << i
    scale[:] = 1 / m
    if i == 0:
        for t in range(m):
            _load_real(near, t * width + h, scale, out, t)
    else:
        half = m // 2
        at = 2 * (half - NEAR) * width + 2 * half * h
        for j in range(2 * half * lanes):
            work[j] = levels[at + j]
        transform_back(work, half, _ring(rings, i - 1))
        for t in range(half):
            _unfold(work, t, half, scale, out)
    transform(out, m, _ring(rings, i))


@fragment()
def _take_block(
    values: Array, slots: int, width: int, row: int, t: int, i: int, x: Array, y: Array, at: int, channels: int,
    low: int, high: int, inner: Array, rings: Arrays, work: Array, zeros: Array,
) -> None:  # fmt: skip
    """Take NEAR 2^i tokens of channels low..high-1, one vector; `inner` is of `_within`."""
    m, block = NEAR << i, (row * slots + t % slots) * width
    high = min(high, channels)
    for s in range(m):
        for h in range(low, high):
            y[at + s * channels + h] = values[block + s * width + h]
            values[block + s * width + h] = x[at + s * channels + h]
    _convolve(values, block + low, width, m, inner, _ring(rings, i), work, zeros)
    lanes = VECTOR_BYTES // values.itemsize
    for s in range(m):
        for h in range(low, high):
            y[at + s * channels + h] += work[2 * s * lanes + h - low]


@compiled
def _chunk(
    part: int, parts: int, x: Array, y: Array, length: int, channels: int, lengths: Array, position: Array,
    values: Array, slots: int, width: int, limit: int, spectra: Arrays, rings: Arrays, scratch: Array,
) -> None:  # fmt: skip
    """Do a part of a chunk x (B, L, H) -> y, for some vectors of channels. `limit` is the length of a whole stream."""
    lanes, rows = VECTOR_BYTES // values.itemsize, len(lengths)
    work, inner, zeros = scratch[part, 0], scratch[part, 1], np.zeros(lanes, values.dtype)
    scale, room = np.empty(2, values.dtype), np.zeros((2, width), values.dtype)
    alike = True
    for row in range(1, rows):
        alike = alike and position[row] == position[0] and lengths[row] == lengths[0]
    together = rows if alike else 1  # rows of the same age need the same spectra
    for v in range(part, width // lanes, parts):
        low, high = v * lanes, (v + 1) * lanes
        valid = max(low, min(high, channels))
        for top in range(0, rows, together):
            i = 0
            while i < lengths[top]:
                t = position[top] + i
                j = -1
                if t % NEAR == 0:
                    while (
                        (NEAR << (j + 1)) <= slots
                        and t % (NEAR << (j + 1)) == 0
                        and i + (NEAR << (j + 1)) <= lengths[top]
                    ):
                        j += 1
                if j >= 0:
                    _within(low, width, j, spectra, rings, scale, work, inner)
                for row in range(top, top + together):
                    at = (row * length + i) * channels
                    if j >= 0:
                        _take_block(
                            values, slots, width, row, t, j, x, y, at, channels, low, high, inner, rings, work, zeros
                        )  # fmt: skip
                    else:
                        for h in range(low, valid):
                            room[0, h] = x[at + h]
                        take_token(
                            values, slots, width, row, t, room[0], 0, spectra[0], room[1], 0, low, high
                        )  # fmt: skip
                        for h in range(low, valid):
                            y[at + h] = room[1, h]
                i += NEAR << j if j >= 0 else 1
                n = position[top] + i
                if n % NEAR == 0 and n < limit:
                    for row in range(top, top + together):
                        pass_on(values, slots, width, row, n, spectra, rings, work, zeros, low, high)
            for row in range(top, top + together):
                for s in range(lengths[row], length):
                    for h in range(low, valid):
                        y[(row * length + s) * channels + h] = 0.0
