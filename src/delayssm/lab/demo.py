"""A first look: fit two echoes with a delay system and with S4D, and draw what each has learned."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import torch
from matplotlib.figure import Figure
from rich.progress import Progress
from torch import Tensor, nn

from delayssm.layers.optim import param_groups
from delayssm.layers.ssm import DelaySSM, DiagonalSSM

#: Lag in steps -> strength.
ECHOES = {90: -0.5, 700: 0.8}
LENGTH = 1024
WIDTH = 32


class Filter(nn.Module):
    """One signal in, WIDTH systems side by side, one signal out: linear, so its kernel says everything."""

    def __init__(self, ssm: DiagonalSSM) -> None:
        super().__init__()
        self.into, self.ssm, self.out = nn.Linear(1, WIDTH, bias=False), ssm, nn.Linear(WIDTH, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, 1) -> the same."""
        y: Tensor = self.out(self.ssm(self.into(x)))
        return y

    def kernel(self) -> Tensor:
        """The impulse response, (LENGTH,)."""
        K = self.ssm.kernel(LENGTH)
        K = torch.cat([K[:, :1] + self.ssm.D[:, None], K[:, 1:]], dim=1)
        weights = self.out.weight[0] * self.into.weight[:, 0]
        return weights @ K


@dataclass
class Fit:
    """How one model fared."""

    name: str
    color: str
    model: Filter
    losses: list[float] = field(default_factory=list)


def run(out: Path, steps: int = 600, seed: int = 0) -> Path:
    """Train both models side by side and write `out`/demo.png."""
    torch.manual_seed(seed)
    fits = [
        Fit("DS4D", "#0072B2", Filter(DelaySSM(WIDTH, 16, LENGTH))),
        Fit("S4D", "#D55E00", Filter(DiagonalSSM(WIDTH, 22))),  # as many parameters
    ]
    truth = torch.zeros(LENGTH)
    for lag, strength in ECHOES.items():
        truth[lag] = strength
    with Progress() as progress:
        for fit in fits:
            task = progress.add_task(f"fitting {fit.name}", total=steps)
            optimiser = torch.optim.AdamW(param_groups(fit.model, lr=1e-2, dt_lr=1e-3, weight_decay=0.0))
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
            generator = torch.Generator().manual_seed(seed)
            for _ in range(steps):
                x = torch.randn(8, LENGTH, 1, generator=generator)
                target = torch.stack([strength * _delay(x, lag) for lag, strength in ECHOES.items()]).sum(0)
                loss = (fit.model(x) - target).square().mean() / target.square().mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                fit.losses.append(float(loss.detach()))
                progress.advance(task)
    out.mkdir(parents=True, exist_ok=True)
    return _draw(out / "demo.png", truth, fits)


def _delay(x: Tensor, lag: int) -> Tensor:
    return torch.cat([torch.zeros_like(x[:, :lag]), x[:, :-lag]], dim=1)


def _draw(path: Path, truth: Tensor, fits: list[Fit]) -> Path:
    matplotlib.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure = Figure(figsize=(11, 7), layout="constrained")
    grid = figure.add_gridspec(len(fits) + 1, 2, width_ratios=[2, 1])
    for row, fit in enumerate(fits):
        axis = figure.add_subplot(grid[row, 0])
        axis.plot(fit.model.kernel().detach(), color=fit.color, linewidth=1, label=f"{fit.name}, learned")
        lags = [t for t in range(LENGTH) if truth[t]]
        axis.scatter(
            lags,
            truth[lags],
            s=60,
            facecolors="none",
            edgecolors="black",
            zorder=3,
            label="the echoes to learn",
        )
        axis.set(
            title=f"Kernel of {fit.name}: remaining error {fit.losses[-1]:.0%}",
            xlabel="lag",
            ylabel="response",
        )
        axis.set_ylim(-0.7, 1.0)
        axis.legend(loc="upper left", frameon=False)
    axis = figure.add_subplot(grid[:-1, 1])
    for fit in fits:
        axis.semilogy(fit.losses, color=fit.color, label=fit.name, linestyle="-" if fit.name == "DS4D" else "--")
    axis.set(title="Error while training", xlabel="step", ylabel="unexplained share of the target")
    axis.legend(frameon=False)
    axis = figure.add_subplot(grid[-1, :])
    ssm = fits[0].model.ssm
    assert isinstance(ssm, DelaySSM)
    weight = (fits[0].model.out.weight[0] * fits[0].model.into.weight[:, 0]).abs() * ssm.kernel(LENGTH).abs().amax(1)
    axis.bar(ssm.delays().detach(), weight.detach(), width=6, color=fits[0].color)
    for lag in ECHOES:
        axis.axvline(lag, color="black", linestyle=":", linewidth=1)
    axis.set(
        title="DS4D: the delay of each channel, and how loud it is (dotted: the echoes)",
        xlabel="delay in steps",
    )
    axis.set(ylabel="loudness", xlim=(0, LENGTH))
    partial = path.with_suffix(".part.png")
    figure.savefig(partial, dpi=150)
    os.replace(partial, path)
    return path
