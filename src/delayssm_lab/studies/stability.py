"""How conservative the stability condition |lam| + |mu| < 1 is, which the paper proves to be sufficient."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np

from delayssm.system.reference import Channel, Real, companion
from delayssm_lab.report import tables
from delayssm_lab.report.drawing import panels, png
from delayssm_lab.study import Computed, File, Places

#: Phases between mu and lam^k, in multiples of pi.
PHASES = {0.0: "in phase", 0.5: "a quarter turn apart", 1.0: "in opposition"}


@dataclass(frozen=True)
class Stability(Computed):
    """Largest root of the characteristic equation z^k = lam z^(k-1) + mu, for all |lam| and |mu| below 1.

    Rotating z by the angle of lam makes lam real and leaves the sizes of all roots unchanged, so the only angle that
    matters is the relative phase arg mu - k arg lam. In phase, the condition is exact for every delay. For other phases
    it is conservative, but less so for longer delays: a root on the unit circle has 1 = lam / z + mu / z^k, and the
    longer the delay, the nearer to 1 is the z that brings mu / z^k into phase.
    """

    name = "stability"
    title = "How conservative the stability condition is (proposition 1)"

    delays: tuple[int, ...] = (1, 2, 4, 16, 64)
    resolution: int = 40

    def files(self, places: Places) -> Iterable[File]:
        sizes = (np.arange(self.resolution) + 0.25) / self.resolution  # never on the line |lam| + |mu| = 1
        figure, axes = panels(len(PHASES) * len(self.delays), width=2.0, height=2.2, columns=len(self.delays))
        shares: dict[str, dict[int, float]] = {name: {} for name in PHASES.values()}
        for axis, ((phase, name), k) in zip(axes, product(PHASES.items(), self.delays), strict=True):
            grid = np.array([[radius(lam, mu * np.exp(1j * math.pi * phase), k) for lam in sizes] for mu in sizes])
            image = axis.pcolormesh(sizes, sizes, grid**k, cmap="YlOrRd", vmin=0, vmax=2, shading="gouraud")
            axis.contour(sizes, sizes, grid, levels=[1.0], colors="black", linewidths=1.6)
            axis.plot([0, 1], [1, 0], color="black", linestyle="--", linewidth=1.2)
            axis.set_title(f"k = {k}\n{name}", fontsize=9)
            axis.set(xticks=(0, 0.5, 1), yticks=(0, 0.5, 1), xlim=(0, 1), ylim=(0, 1))
            axis.set(xlabel="|λ|", ylabel="|μ|", aspect="equal")
            axis.label_outer()
            shares[name][k] = share(grid, sizes)
        figure.colorbar(image, ax=axes, label="growth over one delay: |largest root|^k", shrink=0.8)
        yield "stability.png", png(figure)
        rows = [[name, *(f"{value:.2f}" for value in by_delay.values())] for name, by_delay in shares.items()]
        head = ["phase of μ and λ^k", *(f"share admitted, k = {k}" for k in self.delays)]
        yield "table.md", tables.markdown(head, rows).encode()
        yield "shares.json", json.dumps(shares, indent=1).encode()


def radius(lam: float, mu: complex, k: int) -> float:
    """Return the absolute value of the largest root."""
    one = np.ones(1, dtype=np.complex128)
    channel = Channel(lam * one, mu * one, one, one, k, 0.0)
    return float(np.abs(np.linalg.eigvals(companion(channel, 0))).max())


def share(grid: Real, sizes: Real) -> float:
    """Return the share of the stable systems that the condition admits.

    `grid` holds the largest roots for all pairs of `sizes` of mu (rows) and lam (columns).
    """
    stable = grid < 1
    admitted = sizes[:, None] + sizes[None, :] < 1
    return float((stable & admitted).sum() / stable.sum())
