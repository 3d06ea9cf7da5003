"""How each parameter wants to be trained, and the optimiser groups that follow from it.

A module declares the rules of its own parameters, all of them, in a class attribute:

    optimiser_rules = {"nu_dt": Rule.STEP_SIZE, "C": Rule.NO_DECAY}
"""

import enum
from typing import Any

from torch import nn


class Rule(enum.Enum):
    """How a parameter is trained."""

    STEP_SIZE = "a learning rate of its own, no weight decay"
    DYNAMICS = "a learning rate that may be its own, no weight decay"
    NO_DECAY = "the main learning rate, no weight decay"
    MAIN = "the main learning rate, weight decay"


def param_groups(
    model: nn.Module,
    lr: float,
    *,
    weight_decay: float = 0.01,
    dt_lr: float | None = None,
    dynamics_lr: float | None = None,
) -> list[dict[str, Any]]:
    """Return parameter groups for AdamW: step sizes at their own rate, no decay on SSM, norm and bias parameters.

    Args:
        model: Any module; a parameter without a declared rule decays if it is a matrix.
        lr: Main learning rate.
        weight_decay: Weight decay of matrices outside of state-space modules.
        dt_lr: Learning rate of step sizes; None: what each class declares, 1e-4 for `DelaySSM` as in the paper, and
            min(lr, 1e-3) for `DiagonalSSM`.
        dynamics_lr: Learning rate of the base dynamics and of B; None: `lr`.
    """
    groups: dict[tuple[Rule, float], dict[str, Any]] = {}
    seen: set[nn.Parameter] = set()
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and parameter not in seen:
                seen.add(parameter)
                rule = _rule(module, name, parameter)
                rate, decay = lr, weight_decay if rule is Rule.MAIN else 0.0
                if rule is Rule.STEP_SIZE:
                    rate = _step_size_rate(module, lr) if dt_lr is None else dt_lr
                elif rule is Rule.DYNAMICS and dynamics_lr is not None:
                    rate = dynamics_lr
                group = {"name": rule.name.lower(), "params": [], "lr": rate, "weight_decay": decay}
                groups.setdefault((rule, rate), group)["params"].append(parameter)
    order = list(reversed(Rule))
    return [groups[key] for key in sorted(groups, key=lambda key: (order.index(key[0]), key[1]))]


def _rule(module: nn.Module, name: str, parameter: nn.Parameter) -> Rule:
    rules = getattr(module, "optimiser_rules", None)
    if rules is None:
        return Rule.MAIN if parameter.ndim >= 2 else Rule.NO_DECAY
    if name not in rules:
        raise TypeError(f"{type(module).__name__}.optimiser_rules has no rule for the parameter {name!r}; add one")
    rule: Rule = rules[name]
    return rule


def _step_size_rate(module: nn.Module, lr: float) -> float:
    rate: float = getattr(module, "step_size_rate", lambda lr: lr)(lr)
    return rate
