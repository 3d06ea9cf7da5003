"""What follows from one set of values of the parameters of an SSM, computed once and kept until one of them changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from torch import Tensor, nn

from delayssm import backends
from delayssm.storage import files
from delayssm.system.history import Response
from delayssm.system.memory import History
from delayssm.system.parameters import PairedCoefficients

#: Returns so many samples of the impulse response, (length, width), the channels padded with zeros. It is passed in
#: where it is needed: kept here, it would tie a module to itself, and memory would wait for the garbage collector.
Kernel = Callable[[int, int], Tensor]
#: The far part of a response is kept up to this many bytes even for a single stream.
_SMALL_RESPONSE = 1 << 22


class Versions:
    """Which parameters something was made from, and what torch counts of their changes."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self._then = _versions(parameters)

    def are_of(self, parameters: Iterable[nn.Parameter]) -> bool:
        """Return whether the parameters are those of then, and none was replaced, moved or written to."""
        then, now = self._then, _versions(parameters)
        return (
            then is not None
            and now is not None
            and len(then) == len(now)
            and all(p is q and a == b and v == w for (p, a, v), (q, b, w) in zip(then, now, strict=True))
        )


def _versions(parameters: Iterable[nn.Parameter]) -> list[tuple[nn.Parameter, int, int]] | None:
    """Return what changes with every change; None for parameters made in inference mode, which do not count them."""
    parameters = list(parameters)
    if any(p.is_inference() for p in parameters):
        return None
    return [(p, p.data_ptr(), p._version) for p in parameters]


class Derived:
    """The discrete system without gradients, and the impulse response as bounded streams need it.

    Args:
        parameters: Parameters by name.
        system: What they discretise to.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], system: PairedCoefficients) -> None:
        self.system, self.digest = system, files.digest(parameters)
        self._device = system.alpha.device.type
        self._versions = Versions(parameters.values())
        self._responses: dict[tuple[int, str], Response] = {}  # by number of slots and backend

    def is_of(self, parameters: Mapping[str, nn.Parameter]) -> bool:
        """Return whether the parameters are those of then, and none was replaced, moved or written to."""
        return self._versions.are_of(parameters.values())

    def require(self, history: History) -> None:
        """Raise unless a history was made for these values."""
        if history.parameters != self.digest:
            raise ValueError(
                "a parameter has changed since this state was made, and a state with max_length belongs to the values "
                "of the parameters; start again from init_state, or use a state without max_length"
            )

    def response(self, history: History, kernel_of: Kernel) -> Response:
        """Return the response for streams with as many slots, computed once for all of them.

        Its far part is left out where it is large and there is only one stream, which needs it for one token.
        """
        slots, width = history.slots, history.values.shape[2]
        large = len(history.values) == 1 and 2 * history.values.nbytes > _SMALL_RESPONSE
        whole = not large and history.max_length > slots
        key = slots, backends.choice(self._device)
        response = self._responses.get(key)
        if response is None or (whole and not response.far.numel()):
            backend, kernel = backends.active(self._device), kernel_of(2 * slots if whole else slots, width)
            far = backend.respond_far(kernel, slots) if whole else kernel.new_empty(0)
            response = self._responses[key] = Response(*backend.respond(kernel[:slots], slots), far)
        return response

    def far_response(self, history: History, kernel_of: Kernel) -> Response:
        """Return the response with its far part, which is needed after as many tokens as there are slots."""
        response, slots = self.response(history, kernel_of), history.slots
        if response.far.numel():
            return response
        kernel = kernel_of(2 * slots, history.values.shape[2])
        return replace(response, far=backends.active(self._device).respond_far(kernel, slots))
