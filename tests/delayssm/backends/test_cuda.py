"""On a GPU, results are those of the CPU, and a step can be captured in a graph."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from delayssm import DS4D, S4D, Block, Stack, TokenModel
from tests.support.numerics import relative_rms

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

LAYERS = [lambda: DS4D(24, 16, 300), lambda: S4D(24, 16)]


def _models(make: Callable[[], nn.Module]) -> tuple[TokenModel, TokenModel]:
    """Return the same model on the CPU and on the GPU."""
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
    for parameter, expected in zip(there.parameters(), here.parameters(), strict=True):
        assert parameter.grad is not None
        assert expected.grad is not None
        assert relative_rms(parameter.grad.cpu(), expected.grad) <= 1e-4


@torch.no_grad()
def test_the_float32_kernel() -> None:
    ssm = DS4D(24, 16, 300).ssm
    there = DS4D(24, 16, 300, contour="float32", device="cuda").ssm
    there.load_state_dict(ssm.state_dict())
    assert relative_rms(there.kernel(1000).cpu(), ssm.kernel(1000)) <= 1e-5


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
        outputs = [decoder(token).clone()]  # compiles what is to be captured
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = decoder(token)
    for t in range(1, 800):
        token.copy_(tokens[t])
        graph.replay()
        outputs.append(logits.clone())
    assert relative_rms(torch.stack(outputs, 1).cpu(), expected) <= 1e-5
