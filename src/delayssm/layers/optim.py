"""How each parameter wants to be trained, and the optimiser groups that follow from it."""

import enum
import inspect
from typing import Any

from torch import nn


class Rule(enum.Enum):
    """Stands beside a parameter in its class: `nu_dt: Annotated[nn.Parameter, Rule.STEP_SIZE]`."""

    STEP_SIZE = "a learning rate of its own, no weight decay"
    DYNAMICS = "a learning rate that may be its own, no weight decay"
    NO_DECAY = "the main learning rate, no weight decay"
    MAIN = "the main learning rate, weight decay"


def param_groups(
    model: nn.Module, lr: float, dt_lr: float, weight_decay: float, dynamics_lr: float | None = None
) -> list[dict[str, Any]]:
    """Groups ready for AdamW: step sizes at `dt_lr`, no decay on SSM, norm and bias parameters.

    The base dynamics and B learn at `dynamics_lr`, if that is given; S4D's recipes have a small one. A parameter
    without a declared rule decays if it is a matrix; biases and norm gains are vectors.
    """
    groups: dict[Rule, dict[str, Any]] = {
        Rule.MAIN: {"name": "main", "params": [], "lr": lr, "weight_decay": weight_decay},
        Rule.NO_DECAY: {"name": "no decay", "params": [], "lr": lr, "weight_decay": 0.0},
        Rule.DYNAMICS: {"name": "dynamics", "params": [], "lr": dynamics_lr or lr, "weight_decay": 0.0},
        Rule.STEP_SIZE: {"name": "step size", "params": [], "lr": dt_lr, "weight_decay": 0.0},
    }
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        declared = _rules(type(module))
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                rule = declared.get(name, Rule.MAIN if parameter.ndim >= 2 else Rule.NO_DECAY)
                groups[rule]["params"].append(parameter)
    return [group for group in groups.values() if group["params"]]


def _rules(cls: type) -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for base in reversed(cls.__mro__):
        for name, annotation in inspect.get_annotations(base).items():
            for extra in getattr(annotation, "__metadata__", ()):
                if isinstance(extra, Rule):
                    found[name] = extra
    return found
