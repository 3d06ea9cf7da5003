"""The contract that every module here keeps: one pass, any chunking and token by token give the same result."""

import json
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from delayssm.config import Config, differences
from delayssm.layers.checks import Lengths, Positions, check_step, check_streams, check_whole
from delayssm.storage import files, tensors
from delayssm.system.state import FORMAT, LONGEST, Claim, Streams

S = TypeVar("S", bound=Streams)
#: The number goes up when parameters of the same names and shapes change their meaning.
_WEIGHTS_FORMAT = 1


def reset_parameters(model: nn.Module) -> None:
    """Draw the parameters of all modules inside a model afresh."""
    for module in model.modules():
        if module is not model and module._parameters and hasattr(module, "reset_parameters"):
            module.reset_parameters()  # type: ignore[operator]
        if isinstance(module, Streaming):
            module._write_options()


def _parsed(config: str) -> Any:
    """Return a configuration as it was written; anything else differs from all of them."""
    try:
        return json.loads(config)
    except json.JSONDecodeError:
        return config


class Identity:
    """A module as its states know it. Every copy of a module has another one."""

    def __init__(self, module: "Streaming[Any]") -> None:
        self._module = weakref.ref(module)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Identity":
        """Return the identity of the module's copy, if that is being copied as well, and otherwise the same."""
        copied = memo.get(id(self._module()))
        return copied._identity if isinstance(copied, Streaming) else self

    def __reduce__(self) -> tuple[Any, ...]:
        return Claim, (self.fingerprint(),)

    def fingerprint(self) -> dict[str, str]:
        """Return the configuration of the module, and a digest of its parameters as they are now."""
        module = self._module()
        if module is None:
            raise RuntimeError("the module that made this state is gone; keep it until the state is saved")
        return {"config": json.dumps(module.config.to_dict()), "parameters": files.digest(module.state_dict())}


class Streaming(nn.Module, ABC, Generic[S]):
    """A causal map of sequences that can be stopped and continued anywhere.

    >>> layer, x = DS4D(8, 16, max_delay=100), torch.randn(2, 60, 8)
    >>> with torch.no_grad():
    ...     whole = layer(x)
    ...     state = layer.init_state(batch_size=2)
    ...     y, state = layer.stream(x[:, :59], state)  # a chunk of any length
    ...     last, state = layer.step(x[:, 59], state)  # one token per row
    >>> torch.allclose(whole[:, :59], y, atol=1e-5), torch.allclose(whole[:, 59], last, atol=1e-5)
    (True, True)

    Where rows are padded, `lengths` gives the number of valid tokens of each row, or `Spans` their range: what is
    outside changes nothing, comes out as zeros, and does not advance the state. Where only some outputs are wanted,
    `at` gives their positions in each row; the others are computed only as far as these need them.

    Forward hooks of a module act in `forward` only, as in all of torch. Streams notice when a parameter is replaced or
    written to, but not edits of its `.data`, of which torch keeps no account: begin with a new state after those.
    """

    d_model: int

    def __init__(self) -> None:
        super().__init__()
        self._identity = Identity(self)

    @property
    def config(self) -> Config:
        """Everything that defines this module. It can be written as JSON and built again."""
        raise TypeError(
            f"{type(self).__name__} has no configuration, so it cannot be saved; give it a property `config`"
        )

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the sequences that this module takes; under autocast it takes others, too."""
        return next(self.parameters()).dtype

    @abstractmethod
    def forward(
        self, x: Float[Tensor, "B L H"], lengths: Lengths = None, at: Positions = None
    ) -> Float[Tensor, "B T H"]:
        """Return the outputs for a whole sequence, everywhere or at the positions `at`."""

    @abstractmethod
    def stream(self, x: Float[Tensor, "B L H"], state: S, lengths: Lengths = None) -> tuple[Float[Tensor, "B L H"], S]:
        """Return the output for a chunk of any length, 0 and 1 included, and the state after it.

        Gradients flow through outputs and states. Without gradients (under `torch.no_grad`) the state is advanced in
        place, and the one passed in is spent.
        """

    @torch.no_grad()
    def step(self, x: Float[Tensor, "B H"], state: S) -> tuple[Float[Tensor, "B H"], S]:
        """Return the output for one token per row, without gradients, and the state after it."""
        check_step(x, self.d_model)
        y, state = self.stream(x.unsqueeze(1), state)
        return y.squeeze(1), state

    def init_state(self, batch_size: int, max_length: int | None = None) -> S:
        """Return the state of `batch_size` streams before their first token, for the delays as they are now.

        If no stream will have more than `max_length` tokens, say so: a long delay then costs a fraction of the memory.
        Such a state is for inference only.
        """
        check_streams()
        batch_size = check_whole("batch_size", batch_size, 1)
        if max_length is not None and check_whole("max_length", max_length, 1) > LONGEST:
            raise ValueError(f"max_length can be at most {LONGEST}; None is for streams without end")
        # Tensors made in inference mode could not be advanced outside of it.
        with torch.inference_mode(False), torch.no_grad():
            state = self._first_state(batch_size, max_length)
        state.origin = self._identity
        return state

    def load_state(self, path: Path | str) -> S:
        """Return the streams that `state.save` wrote, to be continued bit for bit by the module that they belong to."""
        path = Path(path)
        saved, about = tensors.read(path, FORMAT)
        mine = self._identity.fingerprint()
        if missing := [name for name in ("config", "parameters", "max_length") if name not in about]:
            raise tensors.Damaged(f"{path} is damaged: it does not say which {', '.join(missing)} it is for")
        theirs, ours = _parsed(about["config"]), _parsed(mine["config"])
        if theirs != ours:
            raise ValueError(f"{path} has streams of another model: {differences(theirs, ours)}")
        if about["parameters"] != mine["parameters"]:
            raise ValueError(
                f"{path} was saved with other values of the parameters: load the checkpoint that belongs to it first, "
                "or begin again from init_state"
            )
        try:
            max_length = None if about["max_length"] == "None" else int(about["max_length"])
            one = self.init_state(1, max_length)
            state = self.init_state(tensors.rows(saved, one.tensors()), max_length)
            tensors.fill(state.tensors(), saved)
            state.count_tokens()
        except ValueError as error:
            raise tensors.Damaged(f"{path} is damaged: {error}") from error
        return state

    def reset_parameters(self) -> None:
        """Draw all parameters afresh, as torch's modules do. After `to_empty`, this makes them valid."""
        reset_parameters(self)

    def _options(self) -> dict[str, int]:
        """Return the options that decide what the parameters mean, but not which shapes they have.

        They are saved with the parameters, so that weights are not loaded into a module for which they mean something
        else.
        """
        return {}

    def _write_options(self) -> None:
        """Write the options to a buffer, which is part of the `state_dict`."""
        if options := self._options():
            like = next(self.parameters())
            self.register_buffer("options", torch.tensor([_WEIGHTS_FORMAT, *options.values()], device=like.device))

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        saved, mine = state_dict.get(f"{prefix}options"), {"format": _WEIGHTS_FORMAT, **self._options()}
        if isinstance(saved, Tensor) and not saved.is_meta and len(mine) > 1:
            theirs = dict(zip(mine, saved.tolist(), strict=False))
            if theirs != mine:
                error_msgs.append(
                    f"{prefix.removesuffix('.') or type(self).__name__}: these weights belong to a module with other "
                    f"options: {differences(theirs, mine)}; build the module with the configuration of the weights"
                )
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    @abstractmethod
    def _first_state(self, batch_size: int, max_length: int | None) -> S:
        """Return the state of new streams, for `init_state`."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_identity"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._identity = Identity(self)
