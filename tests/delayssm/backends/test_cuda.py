"""On a GPU, for those who have one: what the CPU computes, and that a step can be captured."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from delayssm import DS4D, S4D, Block, Stack, TokenModel
from delayssm.system.kernel import FLOAT32
from tests.support.numerics import relative_rms

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

LAYERS = [lambda: DS4D(24, 16, 300), lambda: S4D(24, 16)]


def _models(make: Callable[[], nn.Module]) -> tuple[TokenModel, TokenModel]:
    """The same on both devices."""
    model = TokenModel(50, Stack(Block(make()) for _ in range(2)))  # type: ignore[arg-type]
    return model, copy.deepcopy(model).cuda()


@pytest.mark.parametrize("make", LAYERS, ids=["DS4D", "S4D"])
def test_training(make: Callable[[], nn.Module]) -> None:
    here, there = _models(make)
    tokens = torch.randint(0, 50, (3, 1000))
    outputs = [model(tokens.to(next(model.parameters()).device)) for model in (here, there)]
    for logits in outputs:
        logits.square().mean().backward()
    assert relative_rms(outputs[1].detach().cpu(), outputs[0].detach()) <= 1e-5
    for found, expected in zip(there.parameters(), here.parameters(), strict=True):
        assert found.grad is not None
        assert expected.grad is not None
        assert relative_rms(found.grad.cpu(), expected.grad) <= 1e-4


@torch.no_grad()
def test_the_float32_kernel() -> None:
    ssm = DS4D(24, 16, 300).ssm
    assert relative_rms(copy.deepcopy(ssm).cuda().kernel(1000, FLOAT32).cpu(), ssm.kernel(1000)) <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("make", LAYERS, ids=["DS4D", "S4D"])
@pytest.mark.parametrize("max_length", [None, 1000])
def test_streams(make: Callable[[], nn.Module], max_length: int | None) -> None:
    here, there = (model.eval() for model in _models(make))
    tokens = torch.randint(0, 50, (3, 800))
    expected = here(tokens)
    first, state = there.stream(tokens[:, :700].cuda(), there.init_state(3, max_length))
    decoder = there.decoder(state)
    rest = [decoder(tokens[:, t].cuda()).clone() for t in range(700, 800)]
    assert relative_rms(torch.cat([first, torch.stack(rest, 1)], 1).cpu(), expected) <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("max_length", [None, 1000])
def test_a_captured_step(max_length: int | None) -> None:
    here, there = (model.eval() for model in _models(LAYERS[0]))
    tokens = torch.randint(0, 50, (800, 3))
    expected = here(tokens.T)
    decoder = there.decoder(there.init_state(3, max_length))
    token = tokens[0].cuda()
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        found = [decoder(token).clone()]  # compiles what is to be captured
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = decoder(token)
    for t in range(1, 800):
        token.copy_(tokens[t])
        graph.replay()
        found.append(logits.clone())
    assert relative_rms(torch.stack(found, 1).cpu(), expected) <= 1e-5
