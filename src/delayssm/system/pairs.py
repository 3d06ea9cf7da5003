"""Complex numbers as real tensors whose last axis holds (real part, imaginary part).

Parameters, and whatever passes between operators, are real, because distributed training, safetensors, autocast and the
code that the compiler generates all have trouble with complex dtypes.
"""

import torch
from jaxtyping import Float
from torch import Tensor

Pair = Float[Tensor, "*shape 2"]
Real = Float[Tensor, "*shape"]


def pair(real: Real, imag: Real) -> Pair:
    """Return real + i imag."""
    return torch.stack((real, imag), dim=-1)


def polar(radius: Real, angle: Real) -> Pair:
    """Return radius e^(i angle)."""
    return pair(radius * angle.cos(), radius * angle.sin())


def multiply(a: Float[Tensor, "*#shape 2"], b: Float[Tensor, "*#shape 2"]) -> Pair:
    """Return a b."""
    (ar, ai), (br, bi) = a.unbind(-1), b.unbind(-1)
    return pair(ar * br - ai * bi, ar * bi + ai * br)


def expm1_over(re: Real, im: Real) -> Pair:
    """Return (e^w - 1) / w for w = re + i im, without cancellation for small w; w must not be 0."""
    # e^w - 1 = expm1(re) cos(im) + (cos(im) - 1) + i e^re sin(im)
    er = re.expm1() * im.cos() - 2 * (im / 2).sin().square()
    ei = re.exp() * im.sin()
    return pair(er * re + ei * im, ei * re - er * im) / (re.square() + im.square()).unsqueeze(-1)
