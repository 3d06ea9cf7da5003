"""Weights of the official S4D layer: the class `S4D` in models/s4/s4d.py of state-spaces/s4."""

from collections.abc import Mapping

import torch
from torch import Tensor

from delayssm.system import initial


def translate(weights: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """Return weights of the official layer as those of `S4D` with input "absorbed".

    Args:
        weights: State dict of the official layer, or of a model that contains it.
        prefix: What the names of its tensors begin with.
    """
    shapes = _shapes(weights, prefix)
    found = {name: weights.get(f"{prefix}{name}") for name in shapes}
    if missing := [prefix + name for name, t in found.items() if t is None]:
        begun = {name.removesuffix("kernel.log_dt") for name in weights if name.endswith("kernel.log_dt")}
        places = f"; there are such layers at {', '.join(map(repr, sorted(begun)))}" if begun else ""
        raise ValueError(f"these are not weights of the official S4D layer: {', '.join(missing)} is missing{places}")
    own = {name: t for name, t in found.items() if t is not None}
    if wrong := [name for name, t in own.items() if tuple(t.shape) != shapes[name]]:
        name = wrong[0]
        raise ValueError(f"{prefix}{name} must have shape {shapes[name]}, not {tuple(own[name].shape)}")
    like = own["D"]
    return {
        "ssm.nu_dt": initial.inverse_step_size(own["kernel.log_dt"].double().exp()).to(like.dtype),
        "ssm.nu_re": own["kernel.log_A_real"],
        "ssm.nu_im": own["kernel.A_imag"].to(like.dtype),
        "ssm.C": own["kernel.C"].unsqueeze(0),
        "ssm.D": like,
        "linear.weight": own["output_linear.0.weight"].squeeze(-1),
        "linear.bias": own["output_linear.0.bias"],
    }


def _shapes(weights: Mapping[str, Tensor], prefix: str) -> dict[str, tuple[int, ...]]:
    """Return the names of the official tensors with the shapes that follow from that of the base dynamics."""
    base = weights.get(f"{prefix}kernel.log_A_real", torch.empty(1, 1))
    H, n = base.shape if base.ndim == 2 else (1, 1)
    return {
        "D": (H,),
        "kernel.C": (H, n, 2),
        "kernel.log_dt": (H,),
        "kernel.log_A_real": (H, n),
        "kernel.A_imag": (H, n),
        "output_linear.0.weight": (2 * H, H, 1),
        "output_linear.0.bias": (2 * H,),
    }
