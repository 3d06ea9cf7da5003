"""The fused transfer function, forward and backward, against eager complex64. H 256, N 64, L 1024."""

import json
import sys
from collections.abc import Callable

import torch

from benchmarks import measure, textbook
from delayssm import DelaySSM, backend
from delayssm.system.kernel import EXACT, kernel
from delayssm.system.parameters import Coefficients
from delayssm_lab.environment import peak_memory

H, N, L = 256, 64, 1024


def forward_backward(name: str, width: int, state: int, length: int) -> Callable[[], None]:
    """The kernel and its gradient by one implementation."""
    ssm, grad = DelaySSM(width, state, length), torch.randn(width, length)
    if name == "textbook":
        system = ssm.discretize()
        k, alpha = system.k, system.alpha.detach().float().requires_grad_()
        parts = [system.lam, system.mu, system.c * system.b]
        lam, mu, w = (z.detach().to(torch.complex64).requires_grad_() for z in parts)
        size = 1 << (2 * length - 1).bit_length()

        def by_textbook() -> None:
            K = textbook.transfer(lam, mu, w, k, alpha, size, 1e-3 ** (1 / size))
            torch.fft.irfft(K, n=size)[:, :length].backward(grad)

        return by_textbook

    backend(name)
    leaves = (t.detach().requires_grad_() if t.is_floating_point() else t for t in ssm._system())
    pairs = Coefficients(*leaves)
    return lambda: kernel(pairs, length, EXACT).backward(grad.double()[None])


def run(name: str) -> dict[str, float]:
    """Time one implementation in this process."""
    torch.manual_seed(0)
    forward_backward(name, 2, 4, 16)()  # load and compile everything before memory is counted
    measured = forward_backward(name, H, N, L)
    before = peak_memory()
    best = measure.seconds(measured, repeats=5 if name == "textbook" else 20)
    return {"seconds": best, "megabytes": (peak_memory() - before) / 1e6}


def main() -> None:
    """Print the table."""
    tensor = H * N // 2 * (L // 2 + 1) * 16 / 1e6
    found = {name: measure.fresh("transfer", name) for name in ("textbook", "eager", "numba")}
    labels = {
        "textbook": "textbook: eager complex64, grid 2L",
        "eager": "eager backend: complex128, grid 9/8 L",
        "numba": "numba backend: float64, grid 9/8 L",
    }
    rows = [
        [
            labels[name],
            f"{result['seconds'] * 1e3:.1f}",
            f"{found['textbook']['seconds'] / result['seconds']:.1f}",
            f"{result['megabytes']:.0f}",
        ]
        for name, result in found.items()
    ]
    measure.table(
        f"Kernel, forward and backward (H {H}, N {N}, L {L}; one modes x frequencies tensor is {tensor:.0f} MB)",
        ["implementation", "ms", "times faster", "memory added, MB"],
        rows,
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(run(sys.argv[1])))
    else:
        main()
