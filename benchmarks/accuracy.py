"""How exact the FFT pass is: the kernel against the float64 recurrence, and deep stacks against their own stream."""

import numpy as np
import torch
from torch import Tensor

from benchmarks import measure
from delayssm import DS4D, Block, DelaySSM, Stack
from delayssm.system import kernel, reference

MAX_DELAY = 20_000
DELAYS = [1.0, MAX_DELAY - 1.0, 2.5, 16.999, 700.25, 9000.5]
LENGTHS = [1, 2, 17, 1024, 4096, 16_384]


def relative_rms(found: Tensor, truth: Tensor) -> float:
    """RMS of the error over RMS of the truth."""
    return float((found.double() - truth).square().mean().sqrt() / truth.double().square().mean().sqrt())


def impulse_response(ssm: DelaySSM, length: int) -> Tensor:
    """By the reference, channel after channel."""
    lam, mu, b, c, k, alpha = (t.detach().numpy() for t in ssm.discretize())
    systems = [reference.Channel(*part) for part in zip(lam, mu, b, c, k, alpha, strict=True)]
    return torch.from_numpy(np.stack([reference.kernel(system, length, MAX_DELAY) for system in systems]))


@torch.no_grad()
def kernels() -> None:
    """The worst of both initialisations and four branch fractions, over all channels together."""
    worst = {length: [0.0, 0.0, 0.0] for length in LENGTHS}
    for init in ("lin", "inv"):
        for fraction in (0.015, 0.1, 0.5, 0.9):
            torch.manual_seed(0)
            ssm = DelaySSM(len(DELAYS), 64, MAX_DELAY, init=init, branch_fraction=fraction, delays=DELAYS, dt_min=1e-4)
            truth = impulse_response(ssm, max(LENGTHS))
            for length, record in worst.items():
                system = ssm._system()
                found = [
                    kernel.kernel(system, length)[0],
                    ssm.kernel(length),
                    ssm.kernel(length, kernel.PAPER),
                ]
                for i, K in enumerate(found):
                    record[i] = max(record[i], relative_rms(K, truth[:, :length]))
    rows = [[f"{length:,}", *(f"{error:.1e}" for error in record)] for length, record in worst.items()]
    head = ["length", "float64", "cast to float32", "paper's setting"]
    measure.table("Kernel against the float64 recurrence, relative RMS error, worst of 8 settings", head, rows)


@torch.no_grad()
def stacks() -> None:
    """Four blocks, H 256, N 64, pre-norm."""
    rows = []
    for length in (1024, 2048, 4096, 8192):
        torch.manual_seed(0)
        stack = Stack(Block(DS4D(256, 64, length)) for _ in range(4)).eval()
        x = torch.randn(1, length, 256)
        recurrent, _ = stack.stream(x, stack.init_state(1))
        row = [f"{length:,}"]
        for contour in (kernel.EXACT, kernel.PAPER):
            for module in stack.modules():
                if isinstance(module, DelaySSM):
                    module.contour = contour
            error = stack(x) - recurrent
            row += [f"{relative_rms(error + recurrent, recurrent):.1e}", f"{float(error.abs().max()):.1e}"]
        rows.append(row)
    head = ["length", "relative RMS", "largest error", "paper's setting: relative RMS", "largest error"]
    measure.table("Four blocks, FFT against recurrence (H 256, N 64)", head, rows)


def main() -> None:
    """Print the tables."""
    kernels()
    stacks()


if __name__ == "__main__":
    main()
