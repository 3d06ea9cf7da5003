"""Changes of the delayed branch in training, and ablations of it: table `synthetic-mechanism`."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from delayssm.layers.layer import Layer
from delayssm.layers.ssm import DelaySSM, DiagonalSSM, DiagonalSSMConfig
from delayssm.system import parameters
from delayssm_lab.report import reported, tables
from delayssm_lab.studies.trained import one_run_per_task, summaries, train
from delayssm_lab.study import File, Measured, Readings
from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.tasks.task import Split
from delayssm_lab.training.evaluate import load_model
from delayssm_lab.training.evaluate import measure as measure_on
from delayssm_lab.training.run import Run


@dataclass(frozen=True)
class BestCheckpoint:
    """The best checkpoint of a run, evaluated on a number of validation samples."""

    run: str
    samples: int


@dataclass(frozen=True)
class Mechanism(Measured[BestCheckpoint]):
    """Delays and mu before and after training; accuracy as learned, with every delay at one step, and with mu = 0."""

    name = "mechanism"
    title = "Changes and ablations of the delayed branch (table synthetic-mechanism)"

    runs: tuple[Run, ...] = one_run_per_task("ds4d")
    samples: int = 1024

    def points(self) -> list[BestCheckpoint]:
        return [BestCheckpoint(run.name, self.samples) for run in self.runs]

    def run(self, work: Path) -> None:
        train(self.runs, work / "mini")
        super().run(work)

    def seconds(self, work: Path) -> float:
        return super().seconds(work) + sum(summary["seconds"] for summary in summaries(self.runs, work / "mini"))

    @torch.no_grad()
    def measure(self, point: BestCheckpoint, work: Path) -> Readings:
        model, run = load_model(work / "mini" / point.run)
        task = run.task
        assert isinstance(task, DelayedMemory)
        before, after = _systems(run.initial_model()), _systems(model)
        delays = [torch.cat([ssm.delays().double() for ssm in systems]) for systems in (before, after)]
        mus = [torch.cat([ssm.discretize().mu for ssm in systems]) for systems in (before, after)]
        models = {
            "learned": model,
            "delays of one step": with_shortest_delays(model),
            "without the branch": without_branch(model),
        }
        return {
            "mean delay at the start": float(delays[0].mean()),
            "mean delay at the best": float(delays[1].mean()),
            "mean |change of delay|": float((delays[1] - delays[0]).abs().mean()),
            "mean |change of mu|": float((mus[1] - mus[0]).abs().mean()),
            **{name: measure_on(m, task, Split.VALIDATION, point.samples, run.seed) for name, m in models.items()},
        }

    def show(self, results: Mapping[BestCheckpoint, Readings]) -> Iterable[File]:
        head = [
            "task",
            "model",
            "mean delay, start → best (steps)",
            "mean |Δτ| (steps)",
            "mean |Δμ|",
            "accuracy",
            "accuracy, τ = 1 step",
            "accuracy, μ = 0",
        ]
        labels = {run.name: run.task.label for run in self.runs}
        paper = dict(zip(reported.TASKS, reported.MECHANISM, strict=True))
        rows = []
        for point, values in results.items():
            label = labels[point.run]
            rows.append([label, "DS4D, mini run", *_cells(*values.values())])
            rows.append([label, "DS4D, paper", *_cells(*paper[label])])
        yield "table.md", tables.markdown(head, rows).encode()


def with_shortest_delays(model: nn.Module) -> nn.Module:
    """Return a copy of the model in which every delay is one step."""
    model = copy.deepcopy(model)
    for ssm in _systems(model):
        ssm.nu_tau.data.fill_(-parameters.BOUND)
    return model


def without_branch(model: nn.Module) -> nn.Module:
    """Return a copy of the model with mu = 0 and everything else unchanged.

    The copy is S4D with other decay rates: lam = (1 - p) exp(zeta dt) = exp(lambda dt), with the same effective
    lambda = zeta + log(1 - p) / dt that scales the input.
    """
    model = copy.deepcopy(model)
    for layer in model.modules():
        if isinstance(layer, Layer) and isinstance(layer.ssm, DelaySSM):
            layer.ssm = _diagonal(layer.ssm)
    return model


def _diagonal(ssm: DelaySSM) -> DiagonalSSM:
    """Return the system without its delayed branch."""
    diagonal = DiagonalSSM(ssm.config.narrow(DiagonalSSMConfig))  # type: ignore[arg-type]
    values = {name: value for name, value in ssm.state_dict().items() if name not in ("r", "theta", "nu_tau")}
    dt = parameters.step_size(ssm.nu_dt)[:, None]
    log_kept = nn.functional.logsigmoid(-ssm.r.double())  # log(1 - p)
    values["nu_re"] = (ssm.nu_re.double().exp() - log_kept / dt).log()
    diagonal.load_state_dict(values)
    return diagonal.to(ssm.D.dtype)


def _systems(model: nn.Module) -> list[DelaySSM]:
    return [module for module in model.modules() if isinstance(module, DelaySSM)]


def _cells(before: float, after: float, delay_change: float, mu_change: float, *accuracies: float) -> list[str]:
    delays = f"{before:.1f} → {after:.1f}"
    return [delays, f"{delay_change:.1f}", f"{mu_change:.3f}", *(f"{accuracy:.3f}" for accuracy in accuracies)]
