"""Addresses in compiled code: as pointers, and as functions of C to call."""

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic
def pointer(context, address):  # type: ignore[no-untyped-def]
    """Return an address as a pointer."""

    def generate(target, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], target.get_value_type(types.voidptr))

    return types.voidptr(types.int64), generate


def _call(builder: Any, address: Any, result: Any, *arguments: Any) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(builder.inttoptr(address, kind.as_pointer()), arguments)


@intrinsic
def ask(context, address):  # type: ignore[no-untyped-def]
    """Call the function at an address, which returns a C int."""

    def generate(target, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.sext(_call(builder, arguments[0], ir.IntType(32)), ir.IntType(64))

    return types.int64(types.int64), generate


@intrinsic
def tell(context, address):  # type: ignore[no-untyped-def]
    """Call the function at an address, which returns nothing."""

    def generate(target, builder, signature, arguments):  # type: ignore[no-untyped-def]
        _call(builder, arguments[0], ir.VoidType())
        return target.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def start_team(context, address, member, argument, threads):  # type: ignore[no-untyped-def]
    """Call GOMP_parallel, at an address: every thread of a team calls `member` with the argument."""

    def generate(target, builder, signature, arguments):  # type: ignore[no-untyped-def]
        start, member, argument, threads = arguments
        byte = ir.IntType(8).as_pointer()
        pointers = builder.inttoptr(member, byte), builder.inttoptr(argument, byte)
        number = ir.IntType(32)
        _call(builder, start, ir.VoidType(), *pointers, builder.trunc(threads, number), ir.Constant(number, 0))
        return target.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate
