"""Changes of the delayed branch in training, and ablations of it: table `synthetic-mechanism`."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import nn

from delayssm.layers.delay_ssm import DelaySSM
from delayssm.layers.diagonal_ssm import DiagonalSSM, DiagonalSSMConfig
from delayssm.layers.layer import Layer
from delayssm.system import parameters
from delayssm_lab.recipes.delayed import ModelName
from delayssm_lab.report import reported, tables
from delayssm_lab.studies.checkpoints import Checkpoint, OfCheckpoints
from delayssm_lab.study import File, Places, Readings
from delayssm_lab.tasks.task import Split
from delayssm_lab.training.evaluate import measure


@dataclass(frozen=True)
class Mechanism(OfCheckpoints):
    """Delays and mu before and after training; accuracy as learned, and after three changes of the delayed branch."""

    name = "mechanism"
    title = "Changes and ablations of the delayed branch (table synthetic-mechanism)"

    models: tuple[ModelName, ...] = ("ds4d",)
    samples: int = 1024

    def files(self, places: Places) -> Iterable[File]:
        head = [
            "task",
            "model",
            "mean delay, start → best (steps)",
            "mean |Δτ| (steps)",
            "mean |Δμ|",
            "accuracy",
            *(f"accuracy, {change}" for change in CHANGES),
        ]
        measured = {checkpoint: _measure(checkpoint, self.samples) for checkpoint in self.checkpoints(places)}
        rows = []
        for label, numbers in zip(reported.TASKS, reported.MECHANISM, strict=True):
            mine = {c.source: values for c, values in measured.items() if c.run.task.label == label}
            rows += [[label, f"DS4D, {source}", *_cells(*values.values())] for source, values in mine.items()]
            rows += [[label, "DS4D, paper", *_cells(*numbers), ""]] if mine else []
        yield "table.md", tables.markdown(head, rows).encode()
        named = {f"{checkpoint.run.name}, {checkpoint.source}": values for checkpoint, values in measured.items()}
        yield "values.json", json.dumps(named, indent=1).encode()


#: Changes of the delayed branch whose effect is measured.
CHANGES = "τ = 1 step", "μ = 0", "p = 0"


@torch.no_grad()
def _measure(checkpoint: Checkpoint, samples: int) -> Readings:
    model, run = checkpoint.model(), checkpoint.run
    before, after = _systems(run.initial_model()), _systems(model)
    delays = [torch.cat([ssm.delays().double() for ssm in systems]) for systems in (before, after)]
    mus = [torch.cat([ssm.discretize().mu for ssm in systems]) for systems in (before, after)]
    models = model, with_shortest_delays(model), without_branch(model), with_empty_branch(model)
    accuracies = [measure(version, run.task, Split.VALIDATION, samples, run.seed) for version in models]
    return {
        "mean delay at the start": float(delays[0].mean()),
        "mean delay at the best": float(delays[1].mean()),
        "mean |change of delay|": float((delays[1] - delays[0]).abs().mean()),
        "mean |change of mu|": float((mus[1] - mus[0]).abs().mean()),
        **dict(zip(("accuracy", *CHANGES), accuracies, strict=True)),
    }


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


def with_empty_branch(model: nn.Module) -> nn.Module:
    """Return a copy of the model with p = 0, so that the main branch has the whole budget."""
    model = copy.deepcopy(model)
    for ssm in _systems(model):
        ssm.r.data.fill_(-parameters.BOUND)
    return model


def _diagonal(ssm: DelaySSM) -> DiagonalSSM:
    """Return the system without its delayed branch."""
    config = replace(ssm.config.narrow(DiagonalSSMConfig), n_ssm=None)  # the decay rates now differ between channels
    diagonal = DiagonalSSM(config)  # type: ignore[arg-type]
    values = {
        name: value for name, value in ssm.state_dict().items() if name not in ("r", "theta", "nu_tau", "options")
    }
    for name in {"nu_re", "nu_im", "B"} & values.keys():
        values[name] = parameters.for_channels(values[name], ssm.d_model)
    dt = parameters.step_size(ssm.nu_dt)[:, None]
    log_kept = nn.functional.logsigmoid(-ssm.r.double())  # log(1 - p)
    values["nu_re"] = (values["nu_re"].double().exp() - log_kept / dt).log()
    diagonal.load_state_dict(values)
    return diagonal.to(ssm.D.dtype)


def _systems(model: nn.Module) -> list[DelaySSM]:
    return [module for module in model.modules() if isinstance(module, DelaySSM)]


def _cells(before: float, after: float, delay_change: float, mu_change: float, *accuracies: float) -> list[str]:
    delays = f"{before:.1f} → {after:.1f}"
    return [delays, f"{delay_change:.1f}", f"{mu_change:.3f}", *(f"{accuracy:.3f}" for accuracy in accuracies)]
