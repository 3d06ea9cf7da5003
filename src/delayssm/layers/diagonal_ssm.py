"""The diagonal state-space module, S4D: H independent systems with a skip term. DS4D builds on it.

Parameter names follow the paper: nu_dt, nu_re, nu_im, r, theta, nu_tau are unconstrained; B, C, D are as written.
Complex numbers are real pairs in the last axis, and only one of each conjugate pair is stored.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal, Self, get_args

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.config import Config, Device, Factory, constructor
from delayssm.layers.checks import (
    Lengths,
    Positions,
    check_lengths,
    check_positions,
    check_rows,
    check_sequence,
    check_state,
    check_streams,
    check_whole,
    visible,
)
from delayssm.layers.derived import Derived
from delayssm.layers.optim import Rule
from delayssm.layers.streaming import Streaming
from delayssm.storage import files
from delayssm.system import initial, parameters, plain
from delayssm.system.convolution import convolve
from delayssm.system.history import Response, advance
from delayssm.system.kernel import ContourName, kernel
from delayssm.system.memory import History, Memory, Rings
from delayssm.system.parameters import BOUND, Coefficients, PairedCoefficients
from delayssm.system.recurrence import scan
from delayssm.system.spans import take, without_padding
from delayssm.system.state import State

#: Dtypes that sequences may have, but not parameters.
NARROW = torch.float16, torch.bfloat16
#: A history of this many bytes a stream is worth its speed, even where rings take less.
_SMALL_HISTORY = 1 << 24


@dataclass(frozen=True)
class DiagonalSSMConfig(Config):
    """Configuration of `DiagonalSSM`.

    Args:
        d_model: Number of channels H.
        d_state: State size N of each channel, even; N/2 conjugate pairs are stored.
        init: Initial base dynamics, "lin" (S4D-Lin) or "inv" (S4D-Inv).
        dt_min: Smallest initial step size; step sizes start log-uniformly between `dt_min` and `dt_max`.
        dt_max: Largest initial step size.
        n_ssm: Number of independent sets of dynamics, the base dynamics and B, a divisor of H. Channel h has set
            h mod n_ssm, so 1 is one set for all channels, as in S4's recipes. None is one for each channel.
        input: "explicit" trains B; "absorbed" sets B = 1 and leaves it to C.
        bidirectional: Whether a second C reads the sequence from its end.
        contour: Numerics of the kernel: "exact" (float64), "float32" (for devices where float64 is slow), or "paper"
            (the float32 setting of the paper's appendix C.3).
    """

    d_model: int
    d_state: int = 64
    _: KW_ONLY
    init: initial.Spectrum = "lin"
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    n_ssm: int | None = None
    input: Literal["explicit", "absorbed"] = "explicit"
    bidirectional: bool = False
    contour: ContourName = "exact"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model < 1:
            raise ValueError(f"d_model must be at least 1, not {self.d_model}")
        if self.d_state < 2 or self.d_state % 2:
            raise ValueError(f"d_state must be even (conjugate pairs) and at least 2, not {self.d_state}")
        if self.init not in get_args(initial.Spectrum):
            raise ValueError(f'init must be "lin" (S4D-Lin) or "inv" (S4D-Inv), not {self.init!r}')
        if not 0 < self.dt_min <= self.dt_max < BOUND:
            raise ValueError(f"step sizes need 0 < dt_min <= dt_max < {BOUND:g}, not {self.dt_min} and {self.dt_max}")
        if self.n_ssm is not None and (self.n_ssm < 1 or self.d_model % self.n_ssm):
            raise ValueError(f"n_ssm must divide d_model ({self.d_model}), or be None, not {self.n_ssm}")
        if self.input not in ("explicit", "absorbed"):
            raise ValueError(f'input must be "explicit" or "absorbed", not {self.input!r}')
        if self.contour not in get_args(ContourName):
            raise ValueError(f'contour must be "exact", "float32" or "paper", not {self.contour!r}')

    def build(self, device: Device = None, dtype: torch.dtype | None = None) -> nn.Module:
        return DiagonalSSM(self, device=device, dtype=dtype)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _DiagonalSSMArguments(DiagonalSSMConfig, Factory): ...


class DiagonalSSM(Streaming[State]):
    """S4D: an independent diagonal system for each channel.

    The system, of which N/2 modes h of each channel are stored, and its output are::

        h_t = lam h_(t-1) + b x_t
        y_t = 2 Re(c . h_t) + D x_t

    >>> ssm = DiagonalSSM(d_model=4, d_state=16)
    >>> ssm.discretize().lam.shape
    torch.Size([4, 8])
    >>> ssm.kernel(100).shape  # the impulse response, (channels, length)
    torch.Size([4, 100])
    """

    optimiser_rules: ClassVar[Mapping[str, Rule]] = {
        "nu_dt": Rule.STEP_SIZE,
        "nu_re": Rule.DYNAMICS,
        "nu_im": Rule.DYNAMICS,
        "B": Rule.DYNAMICS,
        "C": Rule.OUTPUT,
        "D": Rule.OUTPUT,
    }

    @constructor(_DiagonalSSMArguments)
    def __init__(self, config: DiagonalSSMConfig, device: Device, dtype: torch.dtype | None) -> None:
        super().__init__()
        self._config = config
        self.d_model = config.d_model
        self._cached: Derived | None = None
        self._allocate(device, dtype)
        self.reset_parameters()

    @staticmethod
    def step_size_rate(lr: float) -> float:
        """Return the learning rate of step sizes that goes with a main learning rate, as S4's recipes have it."""
        return min(lr, 1e-3)

    @staticmethod
    def dynamics_rate(lr: float) -> float:
        """Return the learning rate of the base dynamics and of B, as S4's recipes have it."""
        return min(lr, 1e-3)

    @property
    def config(self) -> DiagonalSSMConfig:
        return self._config

    @property
    def bidirectional(self) -> bool:
        """Whether the sequence is also read from its end."""
        return self._config.bidirectional

    def reset_parameters(self) -> None:
        """Draw initial values as section 3.4 of the paper describes."""
        config, H, n = self._config, self.d_model, self._config.d_state // 2
        device, dtype = self.D.device, self.D.dtype
        nu_re, nu_im = initial.base(len(self.nu_re), config.d_state, config.init)
        with torch.no_grad():
            self.nu_re.copy_(nu_re)
            self.nu_im.copy_(nu_im)
            self.nu_dt.copy_(initial.step_sizes(H, config.dt_min, config.dt_max, device))
            if self.B is not None:
                self.B.copy_(initial.ones(len(self.B), n))
            self.C.copy_(initial.output(len(self.C), H, n, device, dtype))
            self.D.normal_()
        self._write_options()

    def discretize(self) -> Coefficients:
        """Return the discrete system: lam, mu, b, c complex128 (H, N/2), k int64 (H,), alpha float64 (H,).

        c is (2, H, N/2) if bidirectional. Without a delayed branch mu, k and alpha are 0.
        """
        return self._system().to_complex()

    def kernel(self, length: int) -> Tensor:
        """Return the impulse response without D: (H, length), or (2, H, length) if bidirectional."""
        K = kernel(
            self._system(), check_whole("length", length, 1), self._config.contour, dtype=self.signal_dtype
        ).transpose(1, 2)
        return K if self.bidirectional else K[0]

    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """Return the outputs for a whole sequence, by FFT."""
        self._check_input(x)
        check_positions(at, x)
        spans = check_lengths(lengths, x)
        x = without_padding(x, spans)
        if x.numel() == 0:
            return take(x, at).clone()
        K = kernel(self._system(), x.shape[1], self._config.contour, self.D, self.signal_dtype)
        y = convolve(x.to(self.signal_dtype), K).to(x.dtype)
        return without_padding(take(y, at), spans, at)

    def stream(
        self, x: Float[Tensor, "B L H"], state: State, lengths: Lengths = None
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """Return the outputs for a chunk, by recurrence or from past inputs, and the state after it."""
        self._require_causal()
        check_streams()
        self._check_input(x)
        spans = check_lengths(lengths, x)
        check_state(state, State)
        check_rows(x, state.batch_size)
        counts = None if spans is None else spans.lengths
        state.require_room(x.shape[1], counts)
        counts = torch.full_like(state.position, x.shape[1]) if counts is None else counts
        x = without_padding(x, spans)
        signal = x.to(self.signal_dtype)
        front = signal if spans is None else spans.to_front(signal)
        memory: Memory
        if isinstance(state.memory, History):
            self._check_state(state, x)
            y, memory = self._advance(front, state, state.memory, counts), state.memory
        else:
            assert isinstance(state.memory, Rings)
            system = self._system() if torch.is_grad_enabled() else self.constants()
            self._check_state(state, x, system)
            y, memory = scan(system, front, state.memory, state.position, counts)
            y = y + self.D * front
        y = y if spans is None else without_padding(spans.to_place(y), spans)
        return y.to(x.dtype), state.advanced(x.shape[1], counts, memory)

    @property
    def signal_dtype(self) -> torch.dtype:
        """Precision that sequences are computed in, which is float64 for a module in float64, else float32."""
        return torch.float64 if self.D.dtype == torch.float64 else torch.float32

    def extra_repr(self) -> str:
        return str(self._config)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_cached": None}  # copies and pickles derive their own

    def constants_for(self, state: State) -> PairedCoefficients:
        """Return the discrete system without gradients, after making sure that the state fits it."""
        system = self.constants()
        self._check_state(state, state.position, system)
        return system._replace(c=system.c[0])

    def response_for(self, state: State) -> Response:
        """Return the response to go on with, after making sure that the state belongs to these parameters."""
        self._check_state(state, state.position)
        assert isinstance(state.memory, History)
        return self._derived().response(state.memory, self._padded_kernel)

    def _first_state(self, batch_size: int, max_length: int | None) -> State:
        self._require_causal()
        # In-place edits of `.data` leave no trace; a new stream starts from the parameters as they are.
        if self._cached is not None and self._cached.digest != files.digest(dict(self.named_parameters())):
            self._cached = None
        dtype = self.signal_dtype
        position = torch.zeros(batch_size, dtype=torch.int64, device=self.D.device)
        k, modes = self.constants().k, self._config.d_state // 2
        small = max(_SMALL_HISTORY, Rings.bytes_for(k, modes, dtype))
        if max_length is None or History.bytes_for(max_length, self.d_model, dtype) > small:
            memory: Memory = Rings.zeros(batch_size, k, modes, dtype, max_length)
        else:
            like = torch.empty(0, dtype=dtype, device=self.D.device)
            memory = History.zeros(batch_size, max_length, like, self.d_model, self._derived().digest)
        return State(memory, position, self._identity)

    @torch.no_grad()
    def _advance(self, x: Tensor, state: State, history: History, lengths: Tensor) -> Tensor:
        """Return the outputs for a chunk; the history advances in place."""
        response = self._derived().response(history, self._padded_kernel)
        if state.usage.longest + x.shape[1] >= history.slots < history.max_length:
            begins, ends = state.position < history.slots, state.position + lengths >= history.slots
            if bool((begins & ends).any()):
                response = self._derived().far_response(history, self._padded_kernel)
        return advance(x, lengths, state.position, history.values, response, history.max_length)

    def far_response(self, history: History) -> Response:
        """Return the response with the part that is needed after as many tokens as there are slots."""
        derived = self._derived()
        derived.require(history)
        return derived.far_response(history, self._padded_kernel)

    @torch.no_grad()
    def _padded_kernel(self, length: int, width: int) -> Tensor:
        """Return the impulse response with the skip term, (length, width), the channels padded with zeros."""
        system = self.constants()
        K = kernel(system, length, self._config.contour, self.D, self.signal_dtype)[0]
        return F.pad(K, (0, width - self.d_model))

    def _allocate(self, device: Device, dtype: torch.dtype | None) -> None:
        config = self._config
        H, n = config.d_model, config.d_state // 2
        G = H if config.n_ssm is None else config.n_ssm
        dtype = torch.promote_types(dtype or torch.get_default_dtype(), torch.float32)

        def parameter(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.nu_dt, self.nu_re, self.nu_im = parameter(H), parameter(G, n), parameter(G, n)
        self.B = parameter(G, n, 2) if config.input == "explicit" else None
        self.C = parameter(2 if config.bidirectional else 1, H, n, 2)
        self.D = parameter(H)

    def _coefficients(self) -> PairedCoefficients:
        return parameters.diagonal(self.nu_dt, self.nu_re, self.nu_im, self.B, self.C)

    def _system(self) -> PairedCoefficients:
        """Return the discrete system, differentiable."""
        if visible(self.D):
            for name, value in self.named_parameters():
                # The sum is a fast test; finite values with an infinite sum are not worth a warning either.
                if not math.isfinite(value.detach().sum()) and not bool(torch.isfinite(value).all()):
                    wrong = value.numel() - int(torch.isfinite(value).sum())
                    raise ValueError(
                        f"{type(self).__name__}.{name} has {wrong} non-finite values of {value.numel()}: training has "
                        "diverged. Go back to a checkpoint and lower the learning rate or clip gradients"
                    )
        return self._coefficients()

    def constants(self) -> PairedCoefficients:
        """Return the discrete system without gradients, computed again only after a parameter has changed."""
        return self._system() if torch.compiler.is_compiling() else self._derived().system

    def _derived(self) -> Derived:
        """Return what was derived from the parameters as they are now."""
        parameters = dict(self.named_parameters())
        if self._cached is None or not self._cached.is_of(parameters):
            with torch.no_grad():
                system = PairedCoefficients(*(t.contiguous() for t in self._system()))
            self._cached = Derived(parameters, system)
        return self._cached

    def _check_input(self, x: Tensor) -> None:
        """Raise unless x can be processed: in the dtype of the parameters, or in a narrower one."""
        narrow = isinstance(x, Tensor) and x.dtype in NARROW and self.D.dtype == torch.float32
        check_sequence(x, self.d_model, x.dtype if narrow else self.D.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move and cast, but never below float32: rounded parameters would be other delays and another spectrum."""

        def keep(t: Tensor) -> Tensor:
            moved = fn(t)
            return t.to(moved.device) if moved.dtype in NARROW else moved

        module: Self = super()._apply(keep, recurse)  # type: ignore[no-untyped-call]
        return module

    def _require_causal(self) -> None:
        if self.bidirectional:
            raise RuntimeError("a bidirectional module needs the whole sequence and cannot stream; use forward")

    def _check_state(self, state: State, x: Tensor, system: PairedCoefficients | None = None) -> None:
        in_a_graph = torch.is_grad_enabled() and any(t.requires_grad for t in (x, *self.parameters()))
        state.require_owner(self._identity, x.device, in_a_graph)
        memory = state.memory
        if isinstance(memory, History):
            self._derived().require(memory)
        elif (
            isinstance(memory, Rings)
            and system is not None
            and memory.k is not system.k
            and not plain.exporting()  # the delays are part of the graph
        ):
            moved = int((memory.k != system.k).sum())
            if moved:
                raise ValueError(
                    f"{moved} delays have moved to another step since this state was made, so its memory no longer "
                    "fits; start again from init_state, or freeze nu_tau to keep states over updates"
                )
