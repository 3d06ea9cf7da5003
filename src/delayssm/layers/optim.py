"""How each parameter wants to be trained, and the optimiser groups that follow from it.

A module declares the rules of its own parameters, all of them, in a class attribute:

    optimiser_rules = {"nu_dt": Rule.STEP_SIZE, "C": Rule.NO_DECAY}
"""

import enum
import math
from numbers import Real
from typing import Any

from torch import Tensor, nn


class Rule(enum.Enum):
    """How a parameter is trained.

    A module declares the rules of its own parameters, all of them:

    >>> class Gain(torch.nn.Module):
    ...     optimiser_rules = {"log_gain": Rule.STEP_SIZE}
    ...
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.log_gain = torch.nn.Parameter(torch.zeros(4))
    >>> [group["name"] for group in param_groups(Gain(), lr=1e-3)]
    ['step_size']
    """

    STEP_SIZE = "a learning rate of its own, no weight decay"
    DYNAMICS = "a learning rate that may be its own, no weight decay"
    OUTPUT = "the main learning rate, weight decay if asked for"
    NO_DECAY = "the main learning rate, no weight decay"
    MAIN = "the main learning rate, weight decay"


def param_groups(
    model: nn.Module,
    lr: float,
    *,
    weight_decay: float = 0.01,
    dt_lr: float | None = None,
    dynamics_lr: float | None = None,
    decay_output: bool = False,
) -> list[dict[str, Any]]:
    """Return parameter groups for AdamW: step sizes at their own rate, no decay on SSM, norm and bias parameters.

    >>> groups = param_groups(DS4D(8, 16, max_delay=100), lr=4e-3)
    >>> optimiser = torch.optim.AdamW(groups)
    >>> {group["name"]: group["lr"] for group in groups}
    {'main': 0.004, 'no_decay': 0.004, 'output': 0.004, 'dynamics': 0.004, 'step_size': 0.0001}

    Args:
        model: Any module; a parameter without a declared rule decays if it is a matrix.
        lr: Main learning rate.
        weight_decay: Weight decay of matrices outside of state-space modules.
        dt_lr: Learning rate of step sizes; None: what each class declares, 1e-4 for `DelaySSM` as in the paper, and
            min(lr, 1e-3) for `DiagonalSSM` as in S4's recipes.
        dynamics_lr: Learning rate of the base dynamics and of B; None: what each class declares, `lr` for `DelaySSM`
            and min(lr, 1e-3) for `DiagonalSSM`.
        decay_output: Whether the weight decay is also for C and D of state-space modules, as in S4's recipes.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"param_groups takes the model itself, not its parameters or a {type(model).__name__}")
    for name, rate in (("lr", lr), ("dt_lr", dt_lr), ("dynamics_lr", dynamics_lr), ("weight_decay", weight_decay)):
        _check_rate(name, rate)
    groups: dict[tuple[Rule, float], dict[str, Any]] = {}
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                rule = _rule(module, name, parameter)
                decays = rule is Rule.MAIN or (rule is Rule.OUTPUT and decay_output)
                rate, decay = lr, weight_decay if decays else 0.0
                if rule is Rule.STEP_SIZE:
                    rate = _own_rate(module, "step_size_rate", lr) if dt_lr is None else dt_lr
                elif rule is Rule.DYNAMICS:
                    rate = _own_rate(module, "dynamics_rate", lr) if dynamics_lr is None else dynamics_lr
                group = {"name": rule.name.lower(), "params": [], "lr": rate, "weight_decay": decay}
                groups.setdefault((rule, rate), group)["params"].append(parameter)
    order = list(reversed(Rule))
    return [groups[key] for key in sorted(groups, key=lambda key: (order.index(key[0]), key[1]))]


def _check_rate(name: str, rate: Any) -> None:
    """Raise unless a rate is a number of at least 0; None stands for the rate that each class declares."""
    if rate is None and name in ("dt_lr", "dynamics_lr"):
        return
    if isinstance(rate, Tensor) and rate.ndim == 0:  # torch's optimisers take tensors, too
        rate = rate.item()
    if isinstance(rate, bool) or not isinstance(rate, Real) or not 0 <= float(rate) < math.inf:
        raise ValueError(f"{name} must be a number of at least 0, not {rate!r}")


def _rule(module: nn.Module, name: str, parameter: nn.Parameter) -> Rule:
    rules = getattr(module, "optimiser_rules", None)
    if rules is None:
        return Rule.MAIN if parameter.ndim >= 2 else Rule.NO_DECAY
    if name not in rules:
        raise TypeError(f"{type(module).__name__}.optimiser_rules has no rule for the parameter {name!r}; add one")
    rule: Rule = rules[name]
    return rule


def _own_rate(module: nn.Module, method: str, lr: float) -> float:
    """Return the learning rate that a module declares for one of its rules, or else the main one."""
    rate: float = getattr(module, method, lambda lr: lr)(lr)
    return rate
