"""Vectors of complex numbers in compiled loops.

A loop over channels that reads and writes several rows of one array is not vectorised by the compiler: it cannot rule
out that the rows overlap. The functions here are therefore written out for whole vectors. Such a function runs once,
when a loop that calls it is compiled. Its arguments stand for values that will be there later, and every operation
with them becomes an instruction.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

#: Products may be fused with sums, and the sign of zero does not matter.
_FLAGS = ("contract", "nsz")
_INT, _LANE = ir.IntType(64), ir.IntType(32)


def _vector_bytes() -> int:
    features = numba.config.CPU_FEATURES
    wide = "+avx512f" in features if features is not None else binding.get_host_cpu_features().get("avx512f", False)
    return 64 if wide else 32


#: Size of a vector: a register with AVX-512, and elsewhere one register of AVX2 or two of smaller ones.
VECTOR_BYTES = _vector_bytes()


class Index:
    """A whole number of the program that is being compiled."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: Index | int) -> Index:
        return Index(self.builder, self.builder.add(self.value, _integer(other)))

    def __mul__(self, other: Index | int) -> Index:
        return Index(self.builder, self.builder.mul(self.value, _integer(other)))

    def below(self, other: Index) -> Any:
        """Return the condition that this number is less than another."""
        return self.builder.icmp_signed("<", self.value, other.value)


def _integer(number: Index | int) -> Any:
    return number.value if isinstance(number, Index) else ir.Constant(_INT, number)


class Real:
    """A real number of each channel."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    def __add__(self, other: Real) -> Real:
        return Real(self.builder, self.builder.fadd(self.value, other.value, flags=_FLAGS))

    def __sub__(self, other: Real) -> Real:
        return Real(self.builder, self.builder.fsub(self.value, other.value, flags=_FLAGS))

    def __mul__(self, other: Real | float) -> Real:
        factor = other.value if isinstance(other, Real) else self._constant(other)
        return Real(self.builder, self.builder.fmul(self.value, factor, flags=_FLAGS))

    def __neg__(self) -> Real:
        return Real(self.builder, self.builder.fneg(self.value, flags=_FLAGS))

    def __truediv__(self, other: Real) -> Real:
        return Real(self.builder, self.builder.fdiv(self.value, other.value, flags=_FLAGS))

    def constant(self, number: float) -> Real:
        """Return a number of the same kind."""
        return Real(self.builder, self._constant(number))

    def constants(self, numbers: Iterable[float]) -> Real:
        """Return a number for each lane."""
        return Real(self.builder, ir.Constant(self.value.type, list(numbers)))

    def clipped(self, bound: float) -> Real:
        """Return the nearest number between -bound and bound; NaN stays NaN."""
        b, low, high = self.builder, self._constant(-bound), self._constant(bound)
        value = b.select(b.fcmp_ordered("<", self.value, low), low, self.value)
        return Real(b, b.select(b.fcmp_ordered(">", value, high), high, value))

    def flushed(self, bound: float) -> Real:
        """Return 0 for numbers between -bound and bound, and others as they are; NaN stays NaN."""
        b, value = self.builder, self.value
        above = b.fcmp_unordered(">", value, self._constant(bound))
        below = b.fcmp_unordered("<", value, self._constant(-bound))
        return Real(b, b.select(b.or_(above, below), value, self._constant(0.0)))

    def total(self) -> Any:
        """Return the sum over all lanes, one number."""
        b, value = self.builder, self.value
        while value.type.count > 1:
            half = value.type.count // 2
            parts = (ir.Constant(ir.VectorType(_LANE, half), list(range(start, start + half))) for start in (0, half))
            low, high = (b.shuffle_vector(value, value, lanes) for lanes in parts)
            value = b.fadd(low, high, flags=_FLAGS)
        return b.extract_element(value, ir.Constant(_LANE, 0))

    def exp(self) -> Real:
        """Return e^x of float32 numbers, within what float32 holds: 2^k e^r with |r| <= ln(2) / 2."""
        b, t = self.builder, self.value.type
        x = self.clipped(87.3)
        large = self.constant(1.5 * 2**23)  # in a sum with it, nothing is left behind the point
        k = x * math.log2(math.e) + large - large
        r = x - k * 0.693359375 - k * -2.12194440e-4  # ln(2), in two parts so that k times the first is exact
        power = r.constant(1 / math.factorial(7))
        for n in range(6, -1, -1):
            power = power * r + r.constant(1 / math.factorial(n))
        whole = ir.VectorType(_LANE, t.count)
        exponent = b.add(b.fptosi(k.value, whole), ir.Constant(whole, [127] * t.count))
        return power * Real(b, b.bitcast(b.shl(exponent, ir.Constant(whole, [23] * t.count)), t))

    def zero(self) -> Real:
        """Return 0 of the same kind."""
        return Real(self.builder, self._constant(0.0))

    def _constant(self, number: float) -> Any:
        return ir.Constant(self.value.type, [number] * self.value.type.count)


class Complex:
    """A complex number of each channel."""

    def __init__(self, re: Real, im: Real) -> None:
        self.re, self.im = re, im

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Complex | complex) -> Complex:
        if isinstance(other, Complex):
            return Complex(self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re)
        re, im = complex(other).real, complex(other).imag
        if im == 0:
            return Complex(self.re * re, self.im * re)
        if re == 0:
            return Complex(-self.im, self.re) if im == 1 else Complex(-(self.im * im), self.re * im)
        assert abs(re) == im, "no butterfly has any other constant"
        if re > 0:
            return Complex((self.re - self.im) * re, (self.re + self.im) * re)
        return Complex((self.re + self.im) * re, (self.re - self.im) * im)

    def times_conjugate(self, other: Complex) -> Complex:
        """Return the product with the conjugate of a number."""
        return Complex(self.re * other.re + self.im * other.im, self.im * other.re - self.re * other.im)

    def scaled(self, factor: Real) -> Complex:
        """Return the product with a real number."""
        return Complex(self.re * factor, self.im * factor)


class Memory:
    """An array of float32 or float64, one after another in memory. One vector has a number for each of its lanes."""

    def __init__(self, builder: Any, kind: Any, start: Any) -> None:
        double = kind.dtype == types.float64
        self.builder, self.start = builder, start
        self.size = 8 if double else 4
        self.lanes = VECTOR_BYTES // self.size
        self.kind = ir.VectorType(ir.DoubleType() if double else ir.FloatType(), self.lanes)

    def address(self, i: Index | int) -> Any:
        """Return the address of element i."""
        return self.builder.gep(self.start, [_integer(i)])

    def load(self, address: Any) -> Real:
        """Return the vector at an address, aligned or not."""
        pointer = self.builder.bitcast(address, self.kind.as_pointer())
        return Real(self.builder, self.builder.load(pointer, align=self.size))

    def store(self, address: Any, vector: Real) -> None:
        """Write a vector to an address, aligned or not."""
        pointer = self.builder.bitcast(address, self.kind.as_pointer())
        self.builder.store(vector.value, pointer, align=self.size)

    def fetch(self, address: Any, to_write: bool = False) -> None:
        """Bring the cache line of an address near, to be read or written soon, without waiting for it.

        The address need not exist.
        """
        pointer = self.builder.bitcast(address, ir.IntType(8).as_pointer())
        kinds = [pointer.type, *[_LANE] * 3]
        prefetch = self.builder.module.declare_intrinsic(
            "llvm.prefetch", [pointer.type], ir.FunctionType(ir.VoidType(), kinds)
        )
        for_writing, keep_near, data = (ir.Constant(_LANE, value) for value in (int(to_write), 3, 1))
        self.builder.call(prefetch, [pointer, for_writing, keep_near, data])

    def store_number(self, address: Any, number: Any) -> None:
        """Write one number to an address."""
        self.builder.store(number, address)

    def __getitem__(self, i: Index) -> Complex:
        """Return complex vector number i: its real parts, followed by its imaginary parts."""
        at = i * (2 * self.lanes)
        return Complex(self.load(self.address(at)), self.load(self.address(at + self.lanes)))

    def __setitem__(self, i: Index, z: Complex) -> None:
        at = i * (2 * self.lanes)
        self.store(self.address(at), z.re)
        self.store(self.address(at + self.lanes), z.im)

    def everywhere(self, i: Index | int) -> Complex:
        """Return complex number i, the same in all lanes."""
        return Complex(self.number(i * 2), self.number(i * 2 + 1))

    def number(self, i: Index | int) -> Real:
        """Return real number i, the same in all lanes."""
        undefined = ir.Constant(self.kind, ir.Undefined)
        number = self.builder.load(self.address(i), align=self.size)
        vector = self.builder.insert_element(undefined, number, ir.Constant(_LANE, 0))
        lanes = ir.Constant(ir.VectorType(_LANE, self.lanes), [0] * self.lanes)
        return Real(self.builder, self.builder.shuffle_vector(vector, undefined, lanes))


def vectorised(function: Callable[..., None]) -> Any:
    """Make a function of `Memory` and `Index` callable from compiled loops, which pass arrays and integers."""

    def define(context: Any, *kinds: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, values: Any) -> Any:
            arguments: list[Memory | Index] = []
            for kind, value in zip(signature.args, values, strict=True):
                if isinstance(kind, types.Array):
                    array = target.make_array(kind)(target, builder, value=value)
                    arguments.append(Memory(builder, kind, array.data))
                else:
                    arguments.append(Index(builder, value))
            function(*arguments)
            return target.get_dummy_value()

        passed = [kind if isinstance(kind, types.Array) else types.int64 for kind in kinds]
        return types.void(*passed), generate

    names = ["context", *inspect.signature(function).parameters]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    define.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    define.__name__ = define.__qualname__ = function.__name__
    return intrinsic(define)


def repeat(count: Index | int, start: list[Real], body: Callable[[Index, list[Real]], list[Real]]) -> list[Real]:
    """Emit a loop: body(i, values) returns the values after round i; return those after the last."""
    builder = start[0].builder
    slots = [cgutils.alloca_once_value(builder, value.value) for value in start]
    with cgutils.for_range(builder, _integer(count)) as loop:
        values = [Real(builder, builder.load(slot)) for slot in slots]
        for slot, value in zip(slots, body(Index(builder, loop.index), values), strict=True):
            builder.store(value.value, slot)
    return [Real(builder, builder.load(slot)) for slot in slots]
