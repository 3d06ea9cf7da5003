"""Convolution by transforms over channels. See docs/fft.md for the mathematics.

A signal is a flat array, the index of its first number, and how far apart two of its times are. `spare` has three
vectors: zeros, one that is never read, and 1/m.
"""

import numpy as np

from delayssm.backends.numba_compile import Array, Arrays, compiled, fragment
from delayssm.backends.numba_fft import (
    complete,
    enter,
    first,
    forward8,
    last,
    leave,
    reduced,
    restored,
    row_address,
    transform,
    transform_back,
)
from delayssm.backends.numba_vectors import Complex, Index, Memory, vectorised
from delayssm.backends.ring import END, LEAF

Sizes = tuple[int, int, int, int]
ZEROS, UNUSED, SCALE = range(3)


@vectorised
def leaf_product(work: Memory, i: Index, roots: Memory, j: Index, spectrum: Memory) -> None:
    """Make the innermost pass, multiply by a spectrum, and make it backwards."""
    at = [i + k for k in range(LEAF)]
    z = reduced([work[a] for a in at], roots, j)
    z = [value * spectrum[a] for value, a in zip(z, at, strict=True)]
    for a, value in zip(at, restored(z, roots, j), strict=True):
        work[a] = value


@vectorised
def _leaf_gradient(
    work: Memory, i: Index, roots: Memory, j: Index, spectrum: Memory, other: Memory, total: Memory
) -> None:
    """Do as `leaf_product` with the conjugate of a spectrum; before it, add the product with conj(other) to total."""
    at = [i + k for k in range(LEAF)]
    z = reduced([work[a] for a in at], roots, j)
    for a, value in zip(at, z, strict=True):
        total[a] = total[a] + value.times_conjugate(other[a])
    z = [value.times_conjugate(spectrum[a]) for value, a in zip(z, at, strict=True)]
    for a, value in zip(at, restored(z, roots, j), strict=True):
        work[a] = value


@vectorised
def _load(
    kernel: Memory, start: Index, step: Index, t: Index, length: Index, back: Index, mirrored: Index,
    zeros: Memory, work: Memory, scale: Memory,
) -> None:  # fmt: skip
    """Set vector t to lag t of a kernel and, as the negative imaginary part, to lag t - m = -(back + 1)."""
    factor = scale.everywhere(0).re
    re = kernel.load(row_address(kernel, start, step, t, length, zeros))
    im = kernel.load(row_address(kernel, start + step * length, step, back, mirrored, zeros))
    work[t] = Complex(re * factor, -(im * factor))


@vectorised
def _store(
    kernel: Memory, start: Index, step: Index, t: Index, length: Index, back: Index, mirrored: Index,
    unused: Memory, work: Memory, scale: Memory,
) -> None:  # fmt: skip
    """Do the reverse of `_load`."""
    factor = scale.everywhere(0).re
    kernel.store(row_address(kernel, start, step, t, length, unused), work[t].re * factor)
    kernel.store(row_address(kernel, start + step * length, step, back, mirrored, unused), -(work[t].im * factor))


@fragment()
def _first_pass(x: Array, start: int, step: int, length: int, work: Array, m: int, roots: Array, spare: Array) -> None:
    """Make the outermost pass from the signal of one row and block."""
    for p in range(m // END):
        first(x, start, step, length, spare[ZEROS], work, p, m // END, roots)


@fragment()
def _convolve_row(
    x: Array, y: Array, start: int, step: int, length: int, spectrum: Array, work: Array, m: int, ring: Arrays,
    spare: Array,
) -> None:  # fmt: skip
    """Convolve the signal of one row and block."""
    radices, offsets, roots = ring
    leaves, inner, end = offsets[len(radices)], LEAF * radices[len(radices) - 1], m // END
    _first_pass(x, start, step, length, work, m, roots, spare)
    for s in range(0, m, inner):
        enter(work, s, 1, end, ring)
        for leaf in range(s, s + inner, LEAF):
            leaf_product(work, leaf, roots, leaves + leaf // LEAF * (LEAF - 1), spectrum)
        leave(work, s + inner, 1, ring)
    for p in range(end):
        last(y, start, step, length, spare[UNUSED], work, p, end, roots)


@fragment()
def _convolve_row_backward(
    x: Array, g_y: Array, g_x: Array, start: int, step: int, length: int, spectrum: Array, total: Array,
    X: Array, G: Array, m: int, ring: Arrays, spare: Array,
) -> None:  # fmt: skip
    """Compute the gradient of the signal of one row and block, and add that of the kernel's spectrum to `total`."""
    radices, offsets, roots = ring
    leaves, inner, end = offsets[len(radices)], LEAF * radices[len(radices) - 1], m // END
    _first_pass(x, start, step, length, X, m, roots, spare)
    _first_pass(g_y, start, step, length, G, m, roots, spare)
    for s in range(0, m, inner):
        enter(X, s, 1, end, ring)
        enter(G, s, 1, end, ring)
        for leaf in range(s, s + inner, LEAF):
            j = leaves + leaf // LEAF * (LEAF - 1)
            forward8(X, leaf, 1, roots, j)
            _leaf_gradient(G, leaf, roots, j, spectrum, X, total)
        leave(G, s + inner, 1, ring)
    for p in range(end):
        last(g_x, start, step, length, spare[UNUSED], G, p, end, roots)


@fragment()
def _spectrum(
    kernel: Array, start: int, step: int, length: int, mirrored: int, m: int, ring: Arrays, work: Array, spare: Array
) -> None:
    """Set work to the transform of a kernel over m, with lags t >= 0 of one direction and `mirrored` of another."""
    for t in range(m):
        _load(kernel, start, step, t, length, m - 1 - t, mirrored, spare[ZEROS], work, spare[SCALE])
    transform(work, m, ring)


@compiled
def transform_rows(x: Array, length: int, m: int, ring: Arrays, work: Array) -> None:
    """Set work (rows, 2 m lanes) to the transforms of real signals, x (rows, length, lanes), flat."""
    lanes = work.shape[1] // (2 * m)
    spare = np.zeros((3, lanes), work.dtype)
    spare[SCALE] = 1 / m
    for row in range(len(work)):
        _first_pass(x, row * length * lanes, lanes, length, work[row], m, ring[2], spare)
        complete(work[row], m, 1, m // END, ring)


@compiled
def convolve(
    part: int, parts: int, x: Array, kernel: Array, y: Array, shape: Sizes, m: int, ring: Arrays, group: int, rows: int,
    scratch: Array,
) -> None:  # fmt: skip
    """Do a part of the convolution of (B, L, H) with kernels (D, L, H), all arrays flat.

    A task is some rows of a group of blocks of channels. scratch[part] has group + 1 work arrays.
    """
    B, L, H, D = shape
    lanes = scratch.shape[2] // (2 * m)
    spare = np.zeros((3, lanes), scratch.dtype)
    spare[SCALE] = 1 / m
    blocks = (H + lanes - 1) // lanes
    groups, splits = (blocks + group - 1) // group, (B + rows - 1) // rows
    work = scratch[part, group]
    for task in range(part, groups * splits, parts):
        head, top = task % groups * group, task // groups * rows
        tail, bottom = min(head + group, blocks), min(top + rows, B)
        for block in range(head, tail):
            at = min(block * lanes, H - lanes)  # the last block may overlap with the one before
            _spectrum(kernel, at, H, L, (D - 1) * (L - 1), m, ring, scratch[part, block - head], spare)
        for row in range(top, bottom):
            for block in range(head, tail):
                at = row * L * H + min(block * lanes, H - lanes)
                _convolve_row(x, y, at, H, L, scratch[part, block - head], work, m, ring, spare)


@compiled
def convolve_backward(
    part: int, parts: int, g_y: Array, x: Array, kernel: Array, g_x: Array, g_kernel: Array, shape: Sizes, m: int,
    ring: Arrays, group: int, rows: int, scratch: Array,
) -> None:  # fmt: skip
    """Do a part of the backward pass; g_kernel (splits, D, L, H), flat, has a sum for every so many rows.

    scratch[part] has 2 group + 2 work arrays.
    """
    B, L, H, D = shape
    lanes = scratch.shape[2] // (2 * m)
    spare = np.zeros((3, lanes), scratch.dtype)
    spare[SCALE] = 1 / m
    blocks = (H + lanes - 1) // lanes
    groups, splits = (blocks + group - 1) // group, (B + rows - 1) // rows
    X, G = scratch[part, 2 * group], scratch[part, 2 * group + 1]
    for task in range(part, groups * splits, parts):
        head, top = task % groups * group, task // groups * rows
        tail, bottom = min(head + group, blocks), min(top + rows, B)
        for block in range(head, tail):
            at = min(block * lanes, H - lanes)
            _spectrum(kernel, at, H, L, (D - 1) * (L - 1), m, ring, scratch[part, block - head], spare)
            scratch[part, group + block - head, :] = 0.0
        for row in range(top, bottom):
            for block in range(head, tail):
                at = row * L * H + min(block * lanes, H - lanes)
                spectrum, total = scratch[part, block - head], scratch[part, group + block - head]
                _convolve_row_backward(x, g_y, g_x, at, H, L, spectrum, total, X, G, m, ring, spare)
        for block in range(head, tail):
            total, at = scratch[part, group + block - head], min(block * lanes, H - lanes)
            transform_back(total, m, ring)
            at += task // groups * D * L * H
            for t in range(m):
                _store(g_kernel, at, H, t, L, m - 1 - t, (D - 1) * L, spare[UNUSED], total, spare[SCALE])
