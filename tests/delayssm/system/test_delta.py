"""The delta rule in chunks is the rule itself, gradients included."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from delayssm.system import reference
from delayssm.system.delta import CHUNK, delta_rule
from tests.support.numerics import relative_rms

HEADS, KEYS, VALUES = 2, 5, 3


def _inputs(length: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return q, k, v and beta for one row."""
    q, k = (F.normalize(torch.randn(1, HEADS, length, KEYS, dtype=dtype), dim=-1) for _ in range(2))
    return [q, k, torch.randn(1, HEADS, length, VALUES, dtype=dtype), torch.rand(1, HEADS, length, dtype=dtype)]


def _nothing(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.zeros(1, HEADS, VALUES, KEYS, dtype=dtype)


def test_a_case_solved_by_hand() -> None:
    """Two values under one key: the second replaces half of the first. A query between two keys reads a mixture."""
    first, second = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    k = torch.stack([first, second, first]).view(1, 1, 3, 2)
    q = torch.stack([first, second, first + second]).view(1, 1, 3, 2)
    v, beta = torch.tensor([4.0, 10.0, 8.0]).view(1, 1, 3, 1), torch.tensor([1.0, 1.0, 0.5]).view(1, 1, 3)
    y, S = delta_rule(q, k, v, beta, torch.zeros(1, 1, 1, 2))
    assert y.flatten().tolist() == [4.0, 10.0, 6.0 + 10.0]
    assert S.flatten().tolist() == [6.0, 10.0]


@pytest.mark.parametrize("length", [0, 1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_it_is_the_reference(length: int) -> None:
    inputs = _inputs(length)
    y, _ = delta_rule(*inputs, _nothing())
    expected = [reference.delta_rule(*(t[0, head].numpy() for t in inputs)) for head in range(HEADS)]
    assert y.shape == (1, HEADS, length, VALUES)
    if length:
        assert relative_rms(y[0], torch.tensor(np.stack(expected))) <= 1e-13
        single, _ = delta_rule(*(t.float() for t in inputs), _nothing(torch.float32))
        assert relative_rms(single, y) <= 1e-6


def test_gradients_are_those_of_the_loop() -> None:
    inputs = [t.requires_grad_() for t in _inputs(CHUNK + 9)]
    S = torch.randn(1, HEADS, VALUES, KEYS, dtype=torch.float64, requires_grad=True)
    y, last = delta_rule(*inputs, S)
    weights = torch.randn_like(y), torch.randn_like(last)
    q, k, v, beta = inputs
    now, outputs = S, []
    for t in range(q.shape[2]):
        u = beta[:, :, t, None] * (v[:, :, t] - (now @ k[:, :, t, :, None]).squeeze(-1))
        now = now + u.unsqueeze(-1) * k[:, :, t, None]
        outputs.append((now @ q[:, :, t, :, None]).squeeze(-1))
    loop = torch.stack(outputs, 2), now
    for a, b in zip(
        torch.autograd.grad((y, last), [*inputs, S], weights),
        torch.autograd.grad(loop, [*inputs, S], weights),
        strict=True,
    ):
        assert relative_rms(a, b) <= 1e-12


def test_it_stays_bounded() -> None:
    """With keys of unit length S is never larger than what was stored, however long the stream is."""
    q, k, v, beta = _inputs(20 * CHUNK, torch.float32)
    _, S = delta_rule(q, k, F.normalize(v, dim=-1), beta, _nothing(torch.float32))
    _, later = delta_rule(q, k, torch.zeros_like(v), beta, S)
    assert float(later.norm()) < float(S.norm()) <= (KEYS * VALUES) ** 0.5 + 1
