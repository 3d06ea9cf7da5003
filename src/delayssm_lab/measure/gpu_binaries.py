"""Registers, shared memory and spills of the GPU kernels, compiled for several generations of cards without a GPU."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from delayssm_lab.measure.measurement import Isolated
from delayssm_lab.report import tables
from delayssm_lab.study import File, Places, Readings

#: Compute capabilities of A100, H100 and RTX 5090.
GENERATIONS = (80, 90, 120)
#: Modes of the recurrence: N = 2, 64, 128, 256.
MODES = (1, 32, 64, 128)
KERNELS = (
    "transfer, float64",
    "transfer backward, float64",
    "transfer, float32",
    "transfer backward, float32",
    *(f"scan, N {2 * modes}" for modes in MODES),
)
#: Arguments that are integers. Other arguments that are neither sizes nor signals are float64.
_INTEGERS = {"k", "lengths", "position", "first"}


@dataclass(frozen=True)
class Case:
    """A kernel at its launch parameters, and the types of pointers that depend on the arithmetic."""

    name: str
    kernel: Any
    sizes: list[str]
    pointers: dict[str, str]
    constants: dict[str, Any]
    num_warps: int


@dataclass(frozen=True)
class Binary:
    """A kernel compiled for one generation."""

    name: str
    generation: int
    registers: int
    shared: int
    spilled: int  # bytes per thread
    ptx: str


def cases() -> Iterator[Case]:
    """Yield all kernels as they are launched, in the order of `KERNELS`."""
    import triton.language as tl

    from delayssm.backends import triton_gpu, triton_recurrence, triton_transfer

    for dtype, arithmetic, pointer in (("float64", tl.float64, "*fp64"), ("float32", tl.float32, "*fp32")):
        for name, kernel, signal, launch in (
            ("transfer", triton_transfer.transfer, "out", triton_transfer.FORWARD),
            ("transfer backward", triton_transfer.transfer_backward, "grad", triton_transfer.BACKWARD),
        ):
            constants = {"dtype": arithmetic, **launch}
            warps = constants.pop("num_warps")
            yield Case(f"{name}, {dtype}", kernel, triton_transfer.SIZES, {signal: pointer}, constants, warps)
    signals = dict.fromkeys(("x", "y", "feedback"), "*fp32")
    for modes in MODES:
        constants = triton_gpu.recurrence_launch(modes)
        warps = constants.pop("num_warps")
        yield Case(f"scan, N {2 * modes}", triton_recurrence.scan, triton_recurrence.SIZES, signals, constants, warps)


def build(case: Case, generation: int) -> Binary:
    """Compile a kernel for a generation."""
    import triton
    import triton.backends.nvidia
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

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
        command = [str(tools / "cuobjdump"), "--dump-resource-usage", file.name]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = {key: int(value) for key, value in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", output)}
    shared = max(usage["SHARED"], compiled.metadata.shared)
    spilled = usage["STACK"] + usage["LOCAL"]
    return Binary(case.name, generation, usage["REG"], shared, spilled, compiled.asm["ptx"])


def _type(name: str, case: Case) -> str:
    if name in case.constants:
        return "constexpr"
    if name in case.sizes:
        return "i32"
    return case.pointers.get(name, "*i64" if name in _INTEGERS else "*fp64")


@dataclass(frozen=True)
class Compilation:
    """One of `KERNELS` for one generation."""

    kernel: str
    generation: int

    def measure(self) -> Readings:
        binary = build(next(case for case in cases() if case.name == self.kernel), self.generation)
        return {"registers": binary.registers, "shared bytes": binary.shared, "spilled bytes": binary.spilled}


@dataclass(frozen=True)
class GPUBinaries(Isolated[Compilation]):
    """What each kernel needs on each generation."""

    name = "gpu-binaries"
    title = "GPU kernels, compiled without a GPU"

    def points(self) -> list[Compilation]:
        return [Compilation(kernel, generation) for kernel in KERNELS for generation in GENERATIONS]

    def run(self, places: Places) -> None:
        if importlib.util.find_spec("triton") is None:
            raise ImportError(f"{self.name} needs triton, which is published for Linux only: pip install triton")
        super().run(places)

    def show(self, results: Mapping[Compilation, Readings]) -> Iterable[File]:
        names = "registers", "shared bytes", "spilled bytes"
        head = ["kernel", "generation", "registers per thread", "bytes of shared memory", "bytes spilled per thread"]
        rows = [
            [point.kernel, f"sm_{point.generation}", *(f"{values[name]:.0f}" for name in names)]
            for point, values in results.items()
        ]
        yield "table.md", tables.markdown(head, rows).encode()
