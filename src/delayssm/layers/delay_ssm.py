"""The delay state-space module, DS4D: H diagonal systems, each with one delayed feedback."""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.config import Device, Factory, constructor
from delayssm.layers.diagonal_ssm import DiagonalSSM, DiagonalSSMConfig
from delayssm.layers.optim import Rule
from delayssm.system import initial, parameters
from delayssm.system.parameters import PairedCoefficients


@dataclass(frozen=True)
class DelaySSMConfig(DiagonalSSMConfig):
    """Configuration of `DelaySSM`.

    Args:
        max_delay: L_max, at least 3; delays stay between 1 and L_max - 1 steps.
        branch_fraction: p, the share of each mode's memory that is given to the delayed branch: one number; or a pair
            (first, last), spread geometrically over the modes; or a tensor with one p per mode, (N/2,), per channel,
            (H, 1), or for each mode of each channel, (H, N/2). The main branch forgets within about 1/p steps.
        phase: omega, where the angle of mu starts: pi emphasises change, 0 reinforces what repeats.
        delays: Initial delays: "grid" (evenly spaced, in random order), or steps, one number or one per channel.
    """

    max_delay: int = 1024
    _: KW_ONLY
    branch_fraction: initial.Fraction = 0.1
    phase: float = math.pi
    delays: initial.Delays = "grid"

    def __post_init__(self) -> None:
        fraction = _to_lists(self.branch_fraction)
        one_row = isinstance(self.branch_fraction, torch.Tensor | np.ndarray) and self.branch_fraction.ndim == 1
        if not one_row and isinstance(fraction, list | tuple) and len(fraction) != 2 and not _has_rows(fraction):
            raise self._no_pair(fraction)
        object.__setattr__(self, "branch_fraction", [fraction] if one_row else fraction)
        object.__setattr__(self, "delays", _to_lists(self.delays))
        super().__post_init__()
        if self.max_delay < 3:
            raise ValueError(f"max_delay must be at least 3, so that delays have room to move, not {self.max_delay}")
        if not math.isfinite(self.phase):
            raise ValueError(f"phase must be a finite angle in radians, not {self.phase}")
        self._check_fraction()
        self._check_delays()

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> nn.Module:
        return DelaySSM(self, device=device, dtype=dtype)  # type: ignore[arg-type]

    def _check_fraction(self) -> None:
        H, n, fraction = self.d_model, self.d_state // 2, cast(Any, self.branch_fraction)
        if isinstance(fraction, tuple) and not _has_rows(fraction):
            if not 0 < min(fraction) <= max(fraction) < 1:
                raise self._no_pair(fraction)
            return
        rows = fraction if isinstance(fraction, tuple) else ((fraction,),)
        lengths = {len(row) for row in rows}
        if len(rows) not in (1, H) or lengths not in ({1}, {n}):
            raise ValueError(
                f"branch_fraction must have shape ({n},) per mode, ({H}, 1) per channel, or ({H}, {n}), not "
                f"({len(rows)}, {' or '.join(map(str, sorted(lengths)))})"
            )
        if wrong := [p for row in rows for p in row if not 0 <= p < 1]:
            raise ValueError(f"branch_fraction must lie in [0, 1), not {wrong[0]}")

    def _no_pair(self, fraction: Any) -> ValueError:
        H, n = self.d_model, self.d_state // 2
        return ValueError(
            "branch_fraction must be one number, a pair (first, last) of numbers inside (0, 1), or a tensor of shape "
            f"({n},), ({H}, 1) or ({H}, {n}), not {fraction}"
        )

    def _check_delays(self) -> None:
        delays = cast(Any, self.delays)
        if delays == "grid":
            return
        if isinstance(delays, str):
            raise ValueError(f'delays must be "grid", a number of steps, or one number per channel, not {delays!r}')
        steps = delays if isinstance(delays, tuple) else (delays,) * self.d_model
        if len(steps) != self.d_model:
            raise ValueError(f"delays must be one number or one per channel ({self.d_model}), not {len(steps)} numbers")
        if wrong := [delay for delay in steps if not 1 <= delay <= self.max_delay - 1]:
            raise ValueError(
                f"a delay of {wrong[0]:g} steps is outside [1, {self.max_delay - 1}]; raise max_delay (now "
                f"{self.max_delay}) or move the delay"
            )


def _has_rows(fraction: Any) -> bool:
    return any(isinstance(row, list | tuple) for row in fraction)


def _to_lists(value: Any) -> Any:
    """Return tensors and arrays as lists of numbers, and everything else as it is."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    return value.tolist() if isinstance(value, np.ndarray) else value


@dataclass(frozen=True)
class _DelaySSMArguments(DelaySSMConfig, Factory): ...


class DelaySSM(DiagonalSSM):
    """DS4D: the diagonal system plus one learnable delayed feedback per channel.

    The system, of which N/2 modes h of each channel are stored, and its output are::

        h_t = lam h_(t-1) + mu [(1 - alpha) h_(t-k) + alpha h_(t-k-1)] + b x_t,    tau / dt = k + alpha
        y_t = 2 Re(c . h_t) + D x_t

    >>> ssm = DelaySSM(d_model=1, d_state=16, max_delay=100, delays=40.0)
    >>> echo = ssm.kernel(100)[0].abs()  # the impulse response, (channels, length)
    >>> bool(echo[40:45].max() > echo[30:39].max())
    True
    """

    optimiser_rules: ClassVar[Mapping[str, Rule]] = {
        **DiagonalSSM.optimiser_rules,
        "r": Rule.NO_DECAY,
        "theta": Rule.NO_DECAY,
        "nu_tau": Rule.NO_DECAY,
    }
    _config: DelaySSMConfig

    @constructor(_DelaySSMArguments)
    def __init__(self, config: DelaySSMConfig, device: Device, dtype: torch.dtype | None) -> None:
        super().__init__(config, device=device, dtype=dtype)  # type: ignore[arg-type]

    @staticmethod
    def step_size_rate(lr: float) -> float:
        """Return the learning rate of step sizes, the paper's 1e-4 whatever the main learning rate is."""
        return 1e-4

    @staticmethod
    def dynamics_rate(lr: float) -> float:
        """Return the learning rate of the base dynamics and of B, which the paper does not reduce."""
        return lr

    @property
    def config(self) -> DelaySSMConfig:
        return self._config

    @property
    def max_delay(self) -> int:
        """Bound L_max of the delays, which stay between 1 and L_max - 1 steps."""
        return self._config.max_delay

    def reset_parameters(self) -> None:
        super().reset_parameters()
        config, H, n = self._config, self.d_model, self._config.d_state // 2
        with torch.no_grad():
            self.r.copy_(initial.branch(H, n, config.branch_fraction))
            self.theta.copy_(initial.phases(H, n, config.phase, self.theta.device, self.theta.dtype))
            self.nu_tau.copy_(initial.delay_locations(H, config.max_delay, config.delays, self.nu_tau.device))

    def _options(self) -> dict[str, int]:
        return {"max_delay": self.max_delay}

    def delays(self) -> Float[Tensor, " H"]:
        """Return tau / dt of each channel, in steps."""
        return parameters.delay(self.nu_tau, self.max_delay)

    def _allocate(self, device: Device, dtype: torch.dtype | None) -> None:
        super()._allocate(device, dtype)
        H, n = self.d_model, self._config.d_state // 2
        self.r, self.theta = (nn.Parameter(self.C.new_empty(H, n)) for _ in range(2))
        self.nu_tau = nn.Parameter(torch.empty_like(self.nu_dt))

    def _coefficients(self) -> PairedCoefficients:
        return parameters.delayed(
            self.nu_dt,
            self.nu_re,
            self.nu_im,
            self.r,
            self.theta,
            self.nu_tau,
            self.B,
            self.C,
            self.max_delay,
        )
