"""A Fourier transform over channels. See docs/fft.md for the mathematics.

One vector has the same time of many channels, and the butterflies go down the time axis. A `work` array has m complex
vectors; `ring` is (radices, offsets, roots) of `delayssm.backends.ring.Ring`. A signal is an array, the index of its
first number, and how far apart two of its times are.
"""

from typing import Any

from delayssm.backends.butterflies import dft, inverse_dft
from delayssm.backends.numba_compile import Array, Arrays, fragment
from delayssm.backends.numba_vectors import Complex, Index, Memory, vectorised
from delayssm.backends.ring import END, LEAF

#: Times of a signal lie far apart in memory, so those of the butterfly that is this many ahead are fetched already.
_AHEAD = 8


def reduced(z: list[Complex], roots: Memory, j: Index | int) -> list[Complex]:
    """Reduce a polynomial in R parts modulo each of R factors."""
    return dft([z[0], *(part * roots.everywhere(j + k) for k, part in enumerate(z[1:]))])


def restored(z: list[Complex], roots: Memory, j: Index | int) -> list[Complex]:
    """Return R times the parts of the polynomial that has these remainders."""
    first, *parts = inverse_dft(z)
    return [first, *(part.times_conjugate(roots.everywhere(j + k)) for k, part in enumerate(parts))]


def _forward(radix: int) -> Any:
    @vectorised
    def forward(work: Memory, i: Index, stride: Index, roots: Memory, j: Index) -> None:
        at = [i + stride * k for k in range(radix)]
        for a, z in zip(at, reduced([work[a] for a in at], roots, j), strict=True):
            work[a] = z

    return forward


def _backward(radix: int) -> Any:
    @vectorised
    def backward(work: Memory, i: Index, stride: Index, roots: Memory, j: Index) -> None:
        at = [i + stride * k for k in range(radix)]
        for a, z in zip(at, restored([work[a] for a in at], roots, j), strict=True):
            work[a] = z

    return backward


_forward2, _forward3, _forward4, _forward5, forward8 = (_forward(radix) for radix in (2, 3, 4, 5, 8))
_backward2, _backward3, _backward4, _backward5, _backward8 = (_backward(radix) for radix in (2, 3, 4, 5, 8))


def row_address(signal: Memory, start: Index, step: Index, t: Index, length: Index, beyond: Memory) -> Any:
    """Return the address of time t of a signal, or another one beyond its end."""
    inside, outside = signal.address(start + step * t), beyond.start
    return signal.builder.select(t.below(length), inside, outside)


def _fetch_ahead(signal: Memory, start: Index, step: Index, times: list[Index], to_write: bool) -> None:
    for t in times:
        signal.fetch(signal.address(start + step * (t + _AHEAD)), to_write)


@vectorised
def first(
    signal: Memory, start: Index, step: Index, length: Index, zeros: Memory,
    work: Memory, p: Index, stride: Index, roots: Memory,
) -> None:  # fmt: skip
    """Make the outermost pass from a real signal."""
    times = [p + stride * k for k in range(END)]
    _fetch_ahead(signal, start, step, times, to_write=False)
    x = [signal.load(row_address(signal, start, step, t, length, zeros)) for t in times]
    turned = [roots.everywhere(k).scaled(part) for k, part in enumerate(x[1:])]
    for t, z in zip(times, dft([Complex(x[0], x[0].zero()), *turned]), strict=True):
        work[t] = z


@vectorised
def last(
    signal: Memory, start: Index, step: Index, length: Index, unused: Memory,
    work: Memory, p: Index, stride: Index, roots: Memory,
) -> None:  # fmt: skip
    """Make the outermost pass backwards, for real parts alone."""
    times = [p + stride * k for k in range(END)]
    _fetch_ahead(signal, start, step, times, to_write=True)
    for t, z in zip(times, restored([work[t] for t in times], roots, 0), strict=True):
        signal.store(row_address(signal, start, step, t, length, unused), z.re)


@fragment()
def _descend(work: Array, radix: int, start: int, span: int, roots: Array, j: int) -> None:
    """Make one pass forwards over the problem at `start`, of size `span`."""
    stride = span // radix
    if radix == 8:
        for p in range(start, start + stride):
            forward8(work, p, stride, roots, j)
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


@fragment()
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


@fragment()
def enter(work: Array, s: int, level: int, span: int, ring: Arrays) -> None:
    """Make the passes, from a level of size `span` on, of all problems that begin at s."""
    radices, offsets, roots = ring
    for i in range(level, len(radices)):
        if s % span == 0:
            _descend(work, radices[i], s, span, roots, offsets[i] + s // span * (radices[i] - 1))
        span //= radices[i]


@fragment()
def leave(work: Array, s: int, level: int, ring: Arrays) -> None:
    """Make the passes backwards, up to a level, of all problems that end at s."""
    radices, offsets, roots = ring
    span = LEAF
    for i in range(len(radices) - 1, level - 1, -1):
        span *= radices[i]
        if s % span == 0:
            _ascend(work, radices[i], s - span, span, roots, offsets[i] + (s // span - 1) * (radices[i] - 1))


@fragment()
def complete(work: Array, m: int, level: int, span: int, ring: Arrays) -> None:
    """Make the passes of all problems, from a level of size `span` to the innermost."""
    radices, offsets, roots = ring
    leaves = offsets[len(radices)]
    for s in range(0, m, LEAF):
        enter(work, s, level, span, ring)
        forward8(work, s, 1, roots, leaves + s // LEAF * (LEAF - 1))


@fragment()
def transform(work: Array, m: int, ring: Arrays) -> None:
    """Transform m complex vectors in place."""
    complete(work, m, 0, m, ring)


@fragment()
def transform_back(work: Array, m: int, ring: Arrays) -> None:
    """Apply m times the inverse of `transform`."""
    radices, offsets, roots = ring
    leaves = offsets[len(radices)]
    for s in range(0, m, LEAF):
        _backward8(work, s, 1, roots, leaves + s // LEAF * (LEAF - 1))
        leave(work, s + LEAF, 0, ring)
