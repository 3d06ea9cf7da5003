"""Effect of the phase of the delayed branch: figure `phase-init-intuition`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from delayssm.system.reference import Channel, Real, simulate
from delayssm_lab.report.drawing import legend, panels, png
from delayssm_lab.study import Computed, File, Places


@dataclass(frozen=True)
class Phase(Computed):
    """Responses to an event on a constant background, with mu > 0 (phase 0) and mu < 0 (phase pi).

        h_t = lam h_(t-1) + mu h_(t-k) + x_t

    lam, k and both mu are the paper's. The paper does not state the background, the events or their times. Here the
    background is 1, the pulse adds 1 for 70 steps, and the spike is a Gaussian of height 3 and a width of one step.
    """

    name = "phase"
    title = "Reinforcing and cancelling phases (figure phase-init-intuition)"

    lam: float = 0.75
    k: int = 16
    mu_pulse: float = 0.10
    mu_spike: float = 0.20
    onset: int = 400  # long after the response to the background has settled
    after: int = 100

    def files(self, places: Places) -> Iterable[File]:
        t = np.arange(-self.onset, self.after)
        background = np.ones(len(t))
        pulse = ((t >= 0) & (t < 70)).astype(float)
        spike = 3 * np.exp(-0.5 * t**2)
        figure, axes = panels(2, width=4.4, height=3.2)
        data = {}
        cases = (("(a) a lasting event", pulse, self.mu_pulse), ("(b) a narrow spike", spike, self.mu_spike))
        for axis, (title, event, size) in zip(axes, cases, strict=True):
            for phase, mu, color in (("0", size, "#0072B2"), ("pi", -size, "#D55E00")):
                alone, together = self.response(background, mu), self.response(background + event, mu)
                sign = "π" if phase == "pi" else phase
                axis.plot(t, together, color=color, label=f"phase {sign}: background and event")
                axis.plot(t, alone, color=color, linestyle="--", linewidth=1.2, label=f"phase {sign}: background alone")
                data[f"{title}, phase {phase}"] = {"background": alone.tolist(), "with event": together.tolist()}
            axis.set_title(f"{title}, μ = ±{size:.2f}")
            self._mark_times(axis)
        legend(figure, axes)
        yield "phase.png", png(figure)
        yield "responses.json", json.dumps(data, indent=1).encode()

    def response(self, x: Real, mu: float) -> Real:
        """Return the state h for an input x, both (L,)."""
        half = np.full(1, 0.5, np.complex128)  # the output is the sum over a mode and its conjugate: h / 2 + h / 2
        lam, mus, b = (np.full(1, value, np.complex128) for value in (self.lam, mu, 1.0))
        return simulate(Channel(lam, mus, b, half, self.k, 0.0), x, self.k + 2)

    def _mark_times(self, axis: Axes) -> None:
        for time in (0, self.k):
            axis.axvline(time, color="#777777", linewidth=0.8, linestyle=":")
        later = range(3 * self.k, self.after, 2 * self.k)
        axis.set_xticks([0, self.k, *later], ["$t_0$", r"$t_0+\tau$", *(f"+{time}" for time in later)])
        axis.set_xlim(-self.k, self.after)
        axis.set_xlabel("time step")
        axis.set_ylabel("state h")
        axis.grid(alpha=0.25, linewidth=0.5)
