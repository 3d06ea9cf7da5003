"""Convolution by a Fourier transform over channels. See docs/fft.md for the mathematics.

One vector has the same time of many channels, and the butterflies go down the time axis. A `work` array has m complex
vectors; `ring` is (radices, offsets, roots) of `delayssm.backends.ring.Ring`. A signal is an array, the index of its
first number, and how far apart two of its times are.
"""

from typing import Any

from delayssm.backends.butterflies import dft, inverse_dft
from delayssm.backends.numba_compile import Array, Arrays, compiled
from delayssm.backends.numba_vectors import Complex, Index, Memory, vectorised
from delayssm.backends.ring import END, LEAF


Sizes = tuple[int, int, int, int]

#: Rows of a `spare` array: zeros; one that is never read; and 1/m.
ZEROS, UNUSED, SCALE = range(3)


def _reduced(z: list[Complex], roots: Memory, j: Index | int) -> list[Complex]:
    """Reduce a polynomial in R parts modulo each of R factors."""
    return dft([z[0], *(part * roots.everywhere(j + k) for k, part in enumerate(z[1:]))])


def _restored(z: list[Complex], roots: Memory, j: Index | int) -> list[Complex]:
    """Return R times the parts of the polynomial that has these remainders."""
    first, *parts = inverse_dft(z)
    return [first, *(part.times_conjugate(roots.everywhere(j + k)) for k, part in enumerate(parts))]


def _forward(radix: int) -> Any:
    @vectorised
    def forward(work: Memory, i: Index, stride: Index, roots: Memory, j: Index) -> None:
        at = [i + stride * k for k in range(radix)]
        for a, z in zip(at, _reduced([work[a] for a in at], roots, j), strict=True):
            work[a] = z

    return forward


def _backward(radix: int) -> Any:
    @vectorised
    def backward(work: Memory, i: Index, stride: Index, roots: Memory, j: Index) -> None:
        at = [i + stride * k for k in range(radix)]
        for a, z in zip(at, _restored([work[a] for a in at], roots, j), strict=True):
            work[a] = z

    return backward


_forward2, _forward3, _forward4, _forward5, _forward8 = (_forward(radix) for radix in (2, 3, 4, 5, 8))
_backward2, _backward3, _backward4, _backward5, _backward8 = (_backward(radix) for radix in (2, 3, 4, 5, 8))


def _row(signal: Memory, start: Index, step: Index, t: Index, length: Index, beyond: Memory) -> Any:
    """Return the address of time t of a signal, or another one beyond its end."""
    inside, outside = signal.address(start + step * t), beyond.start
    return signal.builder.select(t.below(length), inside, outside)


@vectorised
def _first(
    signal: Memory, start: Index, step: Index, length: Index, zeros: Memory,
    work: Memory, p: Index, stride: Index, roots: Memory,
) -> None:  # fmt: skip
    """Make the outermost pass from a real signal."""
    times = [p + stride * k for k in range(END)]
    x = [signal.load(_row(signal, start, step, t, length, zeros)) for t in times]
    turned = [roots.everywhere(k).scaled(part) for k, part in enumerate(x[1:])]
    for t, z in zip(times, dft([Complex(x[0], x[0].zero()), *turned]), strict=True):
        work[t] = z


@vectorised
def _last(
    signal: Memory, start: Index, step: Index, length: Index, unused: Memory,
    work: Memory, p: Index, stride: Index, roots: Memory,
) -> None:  # fmt: skip
    """Make the outermost pass backwards, for real parts alone."""
    times = [p + stride * k for k in range(END)]
    for t, z in zip(times, _restored([work[t] for t in times], roots, 0), strict=True):
        signal.store(_row(signal, start, step, t, length, unused), z.re)


@vectorised
def _leaf_product(work: Memory, i: Index, roots: Memory, j: Index, spectrum: Memory) -> None:
    """Make the innermost pass, multiply by a spectrum, and make it backwards."""
    at = [i + k for k in range(LEAF)]
    z = _reduced([work[a] for a in at], roots, j)
    z = [value * spectrum[a] for value, a in zip(z, at, strict=True)]
    for a, value in zip(at, _restored(z, roots, j), strict=True):
        work[a] = value


@vectorised
def _leaf_gradient(
    work: Memory, i: Index, roots: Memory, j: Index, spectrum: Memory, other: Memory, total: Memory
) -> None:
    """Do as `_leaf_product` with the conjugate of a spectrum; before it, add the product with conj(other) to total."""
    at = [i + k for k in range(LEAF)]
    z = _reduced([work[a] for a in at], roots, j)
    for a, value in zip(at, z, strict=True):
        total[a] = total[a] + value.times_conjugate(other[a])
    z = [value.times_conjugate(spectrum[a]) for value, a in zip(z, at, strict=True)]
    for a, value in zip(at, _restored(z, roots, j), strict=True):
        work[a] = value


@vectorised
def _load(
    kernel: Memory, start: Index, step: Index, t: Index, length: Index, back: Index, mirrored: Index,
    zeros: Memory, work: Memory, scale: Memory,
) -> None:  # fmt: skip
    """Set vector t to lag t of a kernel and, as the negative imaginary part, to lag t - m = -(back + 1)."""
    factor = scale.everywhere(0).re
    re = kernel.load(_row(kernel, start, step, t, length, zeros))
    im = kernel.load(_row(kernel, start + step * length, step, back, mirrored, zeros))
    work[t] = Complex(re * factor, -(im * factor))


@vectorised
def _store(
    kernel: Memory, start: Index, step: Index, t: Index, length: Index, back: Index, mirrored: Index,
    unused: Memory, work: Memory, scale: Memory,
) -> None:  # fmt: skip
    """Do the reverse of `_load`."""
    factor = scale.everywhere(0).re
    kernel.store(_row(kernel, start, step, t, length, unused), work[t].re * factor)
    kernel.store(_row(kernel, start + step * length, step, back, mirrored, unused), -(work[t].im * factor))


@compiled()
def _descend(work: Array, radix: int, start: int, span: int, roots: Array, j: int) -> None:
    """Make one pass forwards over the problem at `start`, of size `span`."""
    stride = span // radix
    if radix == 8:
        for p in range(start, start + stride):
            _forward8(work, p, stride, roots, j)
    elif radix == 4:
        for p in range(start, start + stride):
            _forward4(work, p, stride, roots, j)
    elif radix == 2:
        for p in range(start, start + stride):
            _forward2(work, p, stride, roots, j)
    elif radix == 3:
        for p in range(start, start + stride):
            _forward3(work, p, stride, roots, j)
    else:
        for p in range(start, start + stride):
            _forward5(work, p, stride, roots, j)


@compiled()
def _ascend(work: Array, radix: int, start: int, span: int, roots: Array, j: int) -> None:
    """Make one pass backwards over the problem at `start`, of size `span`."""
    stride = span // radix
    if radix == 8:
        for p in range(start, start + stride):
            _backward8(work, p, stride, roots, j)
    elif radix == 4:
        for p in range(start, start + stride):
            _backward4(work, p, stride, roots, j)
    elif radix == 2:
        for p in range(start, start + stride):
            _backward2(work, p, stride, roots, j)
    elif radix == 3:
        for p in range(start, start + stride):
            _backward3(work, p, stride, roots, j)
    else:
        for p in range(start, start + stride):
            _backward5(work, p, stride, roots, j)


@compiled()
def _enter(work: Array, s: int, level: int, span: int, ring: Arrays) -> None:
    """Make the passes, from a level of size `span` on, of all problems that begin at s."""
    radices, offsets, roots = ring
    for i in range(level, len(radices)):
        if s % span == 0:
            _descend(work, radices[i], s, span, roots, offsets[i] + s // span * (radices[i] - 1))
        span //= radices[i]


@compiled()
def _leave(work: Array, s: int, level: int, ring: Arrays) -> None:
    """Make the passes backwards, up to a level, of all problems that end at s."""
    radices, offsets, roots = ring
    span = LEAF
    for i in range(len(radices) - 1, level - 1, -1):
        span *= radices[i]
        if s % span == 0:
            _ascend(work, radices[i], s - span, span, roots, offsets[i] + (s // span - 1) * (radices[i] - 1))


@compiled()
def transform(work: Array, m: int, ring: Arrays) -> None:
    """Transform m complex vectors in place."""
    radices, offsets, roots = ring
    leaves = offsets[len(radices)]
    for s in range(0, m, LEAF):
        _enter(work, s, 0, m, ring)
        _forward8(work, s, 1, roots, leaves + s // LEAF * (LEAF - 1))


@compiled()
def transform_back(work: Array, m: int, ring: Arrays) -> None:
    """Apply m times the inverse of `transform`."""
    radices, offsets, roots = ring
    leaves = offsets[len(radices)]
    for s in range(0, m, LEAF):
        _backward8(work, s, 1, roots, leaves + s // LEAF * (LEAF - 1))
        _leave(work, s + LEAF, 0, ring)


@compiled()
def _convolve_row(
    x: Array, y: Array, start: int, step: int, length: int, spectrum: Array, work: Array, m: int, ring: Arrays,
    spare: Array,
) -> None:  # fmt: skip
    """Convolve the signal of one row and block."""
    radices, offsets, roots = ring
    leaves, inner, end = offsets[len(radices)], LEAF * radices[len(radices) - 1], m // END
    for p in range(end):
        _first(x, start, step, length, spare[ZEROS], work, p, end, roots)
    for s in range(0, m, inner):
        _enter(work, s, 1, end, ring)
        for leaf in range(s, s + inner, LEAF):
            _leaf_product(work, leaf, roots, leaves + leaf // LEAF * (LEAF - 1), spectrum)
        _leave(work, s + inner, 1, ring)
    for p in range(end):
        _last(y, start, step, length, spare[UNUSED], work, p, end, roots)


@compiled()
def _convolve_row_backward(
    x: Array, g_y: Array, g_x: Array, start: int, step: int, length: int, spectrum: Array, total: Array,
    X: Array, G: Array, m: int, ring: Arrays, spare: Array,
) -> None:  # fmt: skip
    """Compute the gradient of the signal of one row and block, and add that of the kernel's spectrum to `total`."""
    radices, offsets, roots = ring
    leaves, inner, end = offsets[len(radices)], LEAF * radices[len(radices) - 1], m // END
    for p in range(end):
        _first(x, start, step, length, spare[ZEROS], X, p, end, roots)
    for p in range(end):
        _first(g_y, start, step, length, spare[ZEROS], G, p, end, roots)
    for s in range(0, m, inner):
        _enter(X, s, 1, end, ring)
        _enter(G, s, 1, end, ring)
        for leaf in range(s, s + inner, LEAF):
            j = leaves + leaf // LEAF * (LEAF - 1)
            _forward8(X, leaf, 1, roots, j)
            _leaf_gradient(G, leaf, roots, j, spectrum, X, total)
        _leave(G, s + inner, 1, ring)
    for p in range(end):
        _last(g_x, start, step, length, spare[UNUSED], G, p, end, roots)


@compiled()
def _spectrum(
    kernel: Array, start: int, step: int, length: int, mirrored: int, m: int, ring: Arrays, work: Array, spare: Array
) -> None:
    """Set work to the transform of a kernel over m, with lags t >= 0 of one direction and `mirrored` of another."""
    for t in range(m):
        _load(kernel, start, step, t, length, m - 1 - t, mirrored, spare[ZEROS], work, spare[SCALE])
    transform(work, m, ring)


@compiled()
def convolve(
    part: int, parts: int, x: Array, kernel: Array, y: Array, shape: Sizes, m: int, ring: Arrays, group: int, rows: int,
    scratch: Array, spare: Array,
) -> None:  # fmt: skip
    """Do a part of the convolution of (B, L, H) with kernels (D, L, H), all arrays flat.

    A task is some rows of a group of blocks of channels. scratch[part] has group + 1 work arrays.
    """
    B, L, H, D = shape
    lanes = spare.shape[2]
    blocks = (H + lanes - 1) // lanes
    groups, splits = (blocks + group - 1) // group, (B + rows - 1) // rows
    work, spare_ = scratch[part, group], spare[part]
    for task in range(part, groups * splits, parts):
        first, top = task % groups * group, task // groups * rows
        last, bottom = min(first + group, blocks), min(top + rows, B)
        for block in range(first, last):
            at = min(block * lanes, H - lanes)  # the last block may overlap with the one before
            _spectrum(kernel, at, H, L, (D - 1) * (L - 1), m, ring, scratch[part, block - first], spare_)
        for row in range(top, bottom):
            for block in range(first, last):
                at = row * L * H + min(block * lanes, H - lanes)
                _convolve_row(x, y, at, H, L, scratch[part, block - first], work, m, ring, spare_)


@compiled()
def convolve_backward(
    part: int, parts: int, g_y: Array, x: Array, kernel: Array, g_x: Array, g_kernel: Array, shape: Sizes, m: int,
    ring: Arrays, group: int, rows: int, scratch: Array, spare: Array,
) -> None:  # fmt: skip
    """Do a part of the backward pass; g_kernel (splits, D, L, H), flat, has a sum for every so many rows.

    scratch[part] has 2 group + 2 work arrays.
    """
    B, L, H, D = shape
    lanes = spare.shape[2]
    blocks = (H + lanes - 1) // lanes
    groups, splits = (blocks + group - 1) // group, (B + rows - 1) // rows
    X, G, spare_ = scratch[part, 2 * group], scratch[part, 2 * group + 1], spare[part]
    for task in range(part, groups * splits, parts):
        first, top = task % groups * group, task // groups * rows
        last, bottom = min(first + group, blocks), min(top + rows, B)
        for block in range(first, last):
            at = min(block * lanes, H - lanes)
            _spectrum(kernel, at, H, L, (D - 1) * (L - 1), m, ring, scratch[part, block - first], spare_)
            scratch[part, group + block - first, :] = 0.0
        for row in range(top, bottom):
            for block in range(first, last):
                at = row * L * H + min(block * lanes, H - lanes)
                spectrum, total = scratch[part, block - first], scratch[part, group + block - first]
                _convolve_row_backward(x, g_y, g_x, at, H, L, spectrum, total, X, G, m, ring, spare_)
        for block in range(first, last):
            total, at = scratch[part, group + block - first], min(block * lanes, H - lanes)
            transform_back(total, m, ring)
            at += task // groups * D * L * H
            for t in range(m):
                _store(g_kernel, at, H, t, L, m - 1 - t, (D - 1) * L, spare_[UNUSED], total, spare_[SCALE])
