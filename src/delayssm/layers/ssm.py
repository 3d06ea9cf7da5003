"""The state-space modules: H independent systems with a skip term, and what they share.

Parameter names follow the paper: nu_dt, nu_re, nu_im, r, theta, nu_tau are unconstrained; B, C, D are as written.
Complex numbers are real pairs in the last axis, and only one of each conjugate pair is stored.
"""

import math
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.layers.optim import Rule
from delayssm.layers.streaming import (
    Lengths,
    Positions,
    Streaming,
    check_lengths,
    check_positions,
    check_rows,
    check_sequence,
)
from delayssm.system import initial, parameters
from delayssm.system.convolution import convolve
from delayssm.system.kernel import EXACT, Contour, kernel
from delayssm.system.layout import Layout
from delayssm.system.padding import take, without_padding
from delayssm.system.parameters import Coefficients
from delayssm.system.recurrence import scan
from delayssm.system.state import State

Version = list[tuple[nn.Parameter, int, int]]


class DiagonalSSM(Streaming[State]):
    """S4D: per channel  h_t = lam h_(t-1) + b x_t,  y_t = 2 Re(c . h_t) + D x_t.

    Args:
        d_model: channels H.
        d_state: state size N per channel, even; N/2 conjugate pairs are stored.
        init: "lin" (S4D-Lin) or "inv" (S4D-Inv).
        dt_min, dt_max: step sizes start log-uniformly in this range.
        input: "explicit" trains B, "absorbed" leaves it to C.
        bidirectional: adds a second C that reads the sequence from its end.
    """

    nu_dt: Annotated[nn.Parameter, Rule.STEP_SIZE]
    nu_re: Annotated[nn.Parameter, Rule.DYNAMICS]
    nu_im: Annotated[nn.Parameter, Rule.DYNAMICS]
    B: Annotated[nn.Parameter | None, Rule.DYNAMICS]
    C: Annotated[nn.Parameter, Rule.NO_DECAY]
    D: Annotated[nn.Parameter, Rule.NO_DECAY]

    def __init__(
        self,
        d_model: int,
        d_state: int = 64,
        *,
        init: initial.Spectrum = "lin",
        dt_min: float = 1e-3,
        dt_max: float = 1e-1,
        input: Literal["explicit", "absorbed"] = "explicit",
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        if d_model < 1:
            raise ValueError(f"d_model must be at least 1, not {d_model}")
        if d_state < 2 or d_state % 2:
            raise ValueError(f"d_state must be even (conjugate pairs) and at least 2, not {d_state}")
        if input not in ("explicit", "absorbed"):
            raise ValueError(f'input must be "explicit" or "absorbed", not {input!r}')
        self.d_model = d_model
        self.d_state = d_state
        self.bidirectional = bidirectional
        self.contour: Contour = EXACT
        self._cached: tuple[Version, Coefficients] | None = None

        modes = d_state // 2
        nu_re, nu_im = initial.base(d_model, d_state, init)
        self.nu_dt = nn.Parameter(initial.step_sizes(d_model, dt_min, dt_max))
        self.nu_re = nn.Parameter(nu_re)
        self.nu_im = nn.Parameter(nu_im)
        self.B = nn.Parameter(initial.ones(d_model, modes)) if input == "explicit" else None
        self.C = nn.Parameter(initial.output(2 if bidirectional else 1, d_model, modes))
        self.D = nn.Parameter(torch.randn(d_model))

    def discretize(self) -> Coefficients:
        """The discrete system: lam, mu, b, c complex128 (H, N/2), k int64 (H,), alpha float64 (H,).

        c is (2, H, N/2) if bidirectional. Without a delayed branch mu, k and alpha are 0.
        """
        system = self._system()
        lam, mu, b, c = (torch.view_as_complex(z.contiguous()) for z in system[:4])
        return Coefficients(lam, mu, b, c if self.bidirectional else c[0], system.k, system.alpha)

    def kernel(self, length: int, contour: Contour | None = None) -> Tensor:
        """The impulse response without D: (H, length), or (2, H, length) if bidirectional."""
        if length < 1:
            raise ValueError(f"a kernel has at least one sample, not {length}")
        K = kernel(self._system(), length, contour or self.contour).to(self.signal_dtype)
        return K if self.bidirectional else K[0]

    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """The whole sequence by FFT."""
        check_sequence(x, self.d_model, self.signal_dtype)
        check_positions(at, x)
        lengths = check_lengths(lengths, x)
        x = without_padding(x, lengths)
        if x.numel() == 0:
            return take(x, at).clone()
        K = kernel(self._system(), x.shape[1], self.contour)
        K[0, :, 0] += self.D  # the skip term is one more tap
        y = convolve(x.to(self.signal_dtype), K.to(self.signal_dtype)).to(x.dtype)
        return without_padding(take(y, at), lengths, at)

    def stream(
        self, x: Float[Tensor, "B L H"], state: State, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """A chunk by recurrence."""
        self._require_causal()
        check_sequence(x, self.d_model, self.signal_dtype)
        lengths = check_lengths(lengths, x)
        system = self._system() if torch.is_grad_enabled() else self._constants()
        self._check_state(state, x, system)
        state.require_room(x.shape[1], lengths)
        x = without_padding(x, lengths)
        signal = x.to(self.signal_dtype)
        y, state = scan(system, signal, state, lengths)
        return (y + self.D * signal).to(x.dtype), state

    @property
    def signal_dtype(self) -> torch.dtype:
        """What sequences are computed in: float64 for a module in float64, else float32."""
        return torch.float64 if self.D.dtype == torch.float64 else torch.float32

    def extra_repr(self) -> str:
        return f"{self.d_model}, d_state={self.d_state}, bidirectional={self.bidirectional}"

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cached": None}  # copies and pickles derive their own

    def constants_for(self, state: State) -> Coefficients:
        """The discrete system in pairs, without gradients, after making sure that the state fits it."""
        system = self._constants()
        self._check_state(state, state.position, system)
        return system._replace(c=system.c[0])

    def _first_state(self, batch_size: int, max_length: int | None) -> State:
        self._require_causal()
        self._cached = None  # in-place edits of `.data` leave no trace; a new stream starts from the parameters
        layout = Layout.of(self._constants().k, self.d_state // 2, self.signal_dtype, max_length)
        return State.zeros(self._owner, batch_size, layout)

    def _coefficients(self) -> Coefficients:
        return parameters.diagonal(self.nu_dt, self.nu_re, self.nu_im, self.B, self.C)

    def _system(self) -> Coefficients:
        """The discrete system in pairs, differentiable."""
        if self.D.device.type == "cpu" and not torch.compiler.is_compiling():
            for name, value in self.named_parameters():
                if not bool(torch.isfinite(value).all()):
                    wrong = value.numel() - int(torch.isfinite(value).sum())
                    raise ValueError(
                        f"{type(self).__name__}.{name} has {wrong} non-finite values of {value.numel()}: training has "
                        "diverged. Go back to a checkpoint and lower the learning rate or clip gradients"
                    )
        return self._coefficients()

    def _constants(self) -> Coefficients:
        """The same, computed again only after a parameter has changed."""
        if torch.compiler.is_compiling() or any(p.is_inference() for p in self.parameters()):
            return self._system()  # no version to tell a change by
        now = [(p, p.data_ptr(), p._version) for p in self.parameters()]
        if self._cached is None or not _same(self._cached[0], now):
            with torch.no_grad():
                self._cached = now, Coefficients(*(t.contiguous() for t in self._system()))
        return self._cached[1]

    def _require_causal(self) -> None:
        if self.bidirectional:
            raise RuntimeError("a bidirectional module needs the whole sequence and cannot stream; use forward")

    def _check_state(self, state: State, x: Tensor, system: Coefficients) -> None:
        if state.owner is not self._owner:
            raise ValueError("this state belongs to another module; make one with this module's init_state")
        state.require_unspent()
        check_rows(x, state.batch_size)
        if state.position.device != x.device:
            raise ValueError(
                f"this state is on {state.position.device}, but x is on {x.device}; use state.to(x.device)"
            )
        k = state.layout.k
        if k is not system.k and not torch.equal(k, system.k):
            raise ValueError(
                f"{int((k != system.k).sum())} delays have moved to another step since this state was made, so "
                "its memory no longer fits; start again from init_state, or freeze nu_tau to keep states over updates"
            )


class DelaySSM(DiagonalSSM):
    """DS4D: the diagonal system plus one learnable delayed feedback per channel,

        h_t = lam h_(t-1) + mu [(1 - alpha) h_(t-k) + alpha h_(t-k-1)] + b x_t,    tau / dt = k + alpha.

    Args, besides those of `DiagonalSSM`:
        max_delay: L_max, at least 3; delays stay between 1 and L_max - 1 steps.
        branch_fraction: p, the share of each mode's memory given to the delayed branch: one number, or a pair
            (first, last) spread geometrically over the modes, or a tensor of shape (N/2,) or (H, N/2). The main
            branch forgets within about 1/p steps.
        phase: omega, where the angle of mu starts: pi emphasises change, 0 reinforces what repeats.
        delays: "grid" (evenly spaced, in random order), or steps: one number, or one per channel.
    """

    r: Annotated[nn.Parameter, Rule.NO_DECAY]
    theta: Annotated[nn.Parameter, Rule.NO_DECAY]
    nu_tau: Annotated[nn.Parameter, Rule.NO_DECAY]

    def __init__(
        self,
        d_model: int,
        d_state: int = 64,
        max_delay: int = 1024,
        *,
        init: initial.Spectrum = "lin",
        branch_fraction: initial.Fraction = 0.1,
        phase: float = math.pi,
        delays: initial.Delays = "grid",
        dt_min: float = 1e-3,
        dt_max: float = 1e-1,
        input: Literal["explicit", "absorbed"] = "explicit",
        bidirectional: bool = False,
    ) -> None:
        super().__init__(
            d_model,
            d_state,
            init=init,
            dt_min=dt_min,
            dt_max=dt_max,
            input=input,
            bidirectional=bidirectional,
        )
        if max_delay < 3:
            raise ValueError(f"max_delay must be at least 3, so that delays have room to move, not {max_delay}")
        self.max_delay = max_delay
        modes = d_state // 2
        self.r = nn.Parameter(initial.branch(d_model, modes, branch_fraction))
        self.theta = nn.Parameter(initial.phases(d_model, modes, phase))
        self.nu_tau = nn.Parameter(initial.delay_locations(d_model, max_delay, delays))

    def delays(self) -> Float[Tensor, " H"]:
        """tau / dt per channel, in steps."""
        return parameters.delay(self.nu_tau, self.max_delay)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_delay={self.max_delay}"

    def _coefficients(self) -> Coefficients:
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


def _same(before: Version, now: Version) -> bool:
    return len(before) == len(now) and all(
        p is q and a == b and v == w for (p, a, v), (q, b, w) in zip(before, now, strict=True)
    )
