"""What the GPU kernels become on each generation of cards: registers, shared memory, spills.

Needs triton, but no GPU.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
import triton.backends.nvidia
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from benchmarks import measure
from delayssm.backends import triton_gpu, triton_recurrence, triton_transfer

#: A100, H100 and RTX 5090.
GENERATIONS = (80, 90, 120)
#: Modes of the recurrence: N = 2, 64, 128, 256.
MODES = (1, 32, 64, 128)
_TYPES = {"float64": (tl.float64, "*fp64"), "float32": (tl.float32, "*fp32")}
#: Arguments that hold whole numbers; the others that are not sizes are float64.
_INTEGERS = {"k", "lengths", "position", "layout", "rooms"}


@dataclass(frozen=True)
class Case:
    """A kernel, with the pointers whose type depends on the arithmetic, at its launch parameters."""

    name: str
    kernel: Any
    sizes: list[str]
    pointers: dict[str, str]
    constants: dict[str, Any]
    num_warps: int


@dataclass(frozen=True)
class Binary:
    """What came of it."""

    name: str
    generation: int
    registers: int
    shared: int
    spilled: int  # bytes per thread
    ptx: str


def cases() -> Iterator[Case]:
    """All kernels as they are launched."""
    for dtype, (arithmetic, pointer) in _TYPES.items():
        launch = dict(triton_transfer.FORWARD)
        warps = launch.pop("num_warps")
        constants = {"dtype": arithmetic, **launch}
        yield Case(
            f"transfer, {dtype}", triton_transfer.transfer, triton_transfer.SIZES, {"out": pointer}, constants, warps
        )
        launch = dict(triton_transfer.BACKWARD)
        warps = launch.pop("num_warps")
        constants = {"dtype": arithmetic, **launch}
        kernel = triton_transfer.transfer_backward
        yield Case(f"transfer backward, {dtype}", kernel, triton_transfer.SIZES, {"grad": pointer}, constants, warps)
    signals = dict.fromkeys(("x", "y", "feedback", "inputs", "coming"), "*fp32")
    for modes in MODES:
        launch = triton_gpu.recurrence_launch(modes)
        warps = launch.pop("num_warps")
        yield Case(f"scan, N {2 * modes}", triton_recurrence.scan, triton_recurrence.SIZES, signals, launch, warps)


def build(case: Case, generation: int) -> Binary:
    """Compile for a generation, without a card."""
    signature = {name: _type(name, case) for name in case.kernel.arg_names}
    source = ASTSource(case.kernel, signature, constexprs=case.constants)
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", generation, 32),
        options={"num_warps": case.num_warps, "enable_fp_fusion": True},
    )
    tools = Path(triton.backends.nvidia.__file__).parent / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        command = [tools / "cuobjdump", "--dump-resource-usage", file.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {key: int(value) for key, value in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", usage)}
    shared = max(found["SHARED"], compiled.metadata.shared)
    spilled = found["STACK"] + found["LOCAL"]
    return Binary(case.name, generation, found["REG"], shared, spilled, compiled.asm["ptx"])


def _type(name: str, case: Case) -> str:
    if name in case.constants:
        return "constexpr"
    if name in case.sizes:
        return "i32"
    return case.pointers.get(name, "*i64" if name in _INTEGERS else "*fp64")


def main() -> None:
    """Print the table."""
    rows = []
    for case in cases():
        for generation in GENERATIONS:
            one = build(case, generation)
            rows.append([one.name, f"sm_{generation}", str(one.registers), str(one.shared), str(one.spilled)])
    head = ["kernel", "generation", "registers per thread", "bytes of shared memory", "bytes spilled per thread"]
    measure.table("GPU kernels, compiled without a GPU", head, rows)


if __name__ == "__main__":
    main()
