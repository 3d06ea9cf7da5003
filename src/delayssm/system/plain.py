"""The operators in formulas that torch can transform in any way.

Operators are fast in the forward pass and in one backward pass. Everything else that torch can do to a function, such
as `torch.func`, forward-mode differentiation and derivatives of derivatives, goes through the formulas here.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad

from delayssm.backends.lengths import fast_length


def wanted() -> bool:
    """Return whether a transform of `torch.func` or forward-mode differentiation is at work."""
    if torch.compiler.is_compiling():
        return False
    if torch._C._get_tracing_state() is not None:
        raise RuntimeError("torch.jit.trace cannot follow these operators; use torch.compile or torch.export")
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def exporting() -> bool:
    """Return whether `torch.export` is at work."""
    return getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)()  # torch 2.6 has only the latter


def backward(
    formula: Callable[..., Tensor], inputs: Sequence[Tensor | None], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Return the gradients of inputs for that of formula(*inputs), in a form that can be differentiated again."""
    wanting = [t for t in inputs if t is not None and t.requires_grad]
    gradients = torch.autograd.grad(formula(*inputs), wanting, grad, create_graph=True, allow_unused=True)
    found = iter(gradients)
    return tuple(next(found) if t is not None and t.requires_grad else None for t in inputs)


def in_a_graph() -> bool:
    """Return whether the backward pass that is under way will itself be differentiated."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def convolve(x: Float[Tensor, "B L H"], kernel: Float[Tensor, "D L H"]) -> Float[Tensor, "B L H"]:
    """Return what `delayssm.system.convolution.convolve` returns."""
    length = x.shape[1]
    size = fast_length(2 * length - 1)
    taps = F.pad(kernel[0].T, (0, size - length))  # lag t at place t, and lag -t at place size - t
    if len(kernel) == 2:
        taps = taps + F.pad(kernel[1, : length - 1].flip(0).T, (size - length + 1, 0))
    spectrum = torch.fft.rfft(x.transpose(1, 2), n=size) * torch.fft.rfft(taps)
    y: Tensor = torch.fft.irfft(spectrum, n=size)[..., :length].transpose(1, 2).contiguous()
    return y


def glu(z: Float[Tensor, "*B G"]) -> Float[Tensor, "*B H"]:
    """Return a sigmoid(b) for the halves a, b of the last axis."""
    if not wanted():
        return F.glu(z)
    a, b = z.chunk(2, -1)  # torch's own has no rule for batches of tangents
    return a * torch.sigmoid(b)
