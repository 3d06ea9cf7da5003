"""What torch's defaults are makes no difference to a module that exists."""

from collections.abc import Iterator

import pytest
import torch

from delayssm import DS4D, Block, PooledModel, Stack, TokenModel, Values
from tests.support.numerics import relative_rms


@pytest.fixture(params=[torch.float64, torch.bfloat16, "meta"], ids=str)
def default(request: pytest.FixtureRequest) -> Iterator[object]:
    """Make something else torch's default."""
    if request.param == "meta":
        with torch.device("meta"):
            yield request.param
    else:
        torch.set_default_dtype(request.param)
        yield request.param
        torch.set_default_dtype(torch.float32)


@pytest.fixture
def model() -> TokenModel:
    return TokenModel(9, Stack(Block(DS4D(4, 4, 30, device="cpu", dtype=torch.float32)) for _ in range(2))).eval()


@pytest.fixture
def expected(model: TokenModel) -> torch.Tensor:
    return model(torch.arange(8, device="cpu").unsqueeze(0)).detach()


@pytest.mark.parametrize("max_length", [None, 8])
@torch.no_grad()
def test_streams(
    backend: str, model: TokenModel, expected: torch.Tensor, max_length: int | None, default: object
) -> None:
    tokens = torch.arange(8, device="cpu").unsqueeze(0)
    assert relative_rms(model(tokens), expected) <= 1e-6
    y, state = model.stream(tokens[:, :5], model.init_state(1, max_length), [5])
    assert relative_rms(y, expected[:, :5]) <= 1e-6
    decoder = model.decoder(state.select([0]))
    for t in range(5, 8):
        assert relative_rms(decoder(tokens[:, t]), expected[:, t]) <= 1e-6
    state.reset([0])
    assert len(list(model.generate([1, 2], 3, seed=0))) == 3


def test_training(model: TokenModel, expected: torch.Tensor, default: object) -> None:
    model.train()(torch.arange(8, device="cpu").unsqueeze(0)).sum().backward()
    assert all(bool(p.grad.isfinite().all()) and p.grad.device.type == "cpu" for p in model.parameters())


def test_classification(default: object) -> None:
    layer = DS4D(4, 4, 30, bidirectional=True, device="cpu", dtype=torch.float32)
    inputs = Values(3, 4, device="cpu", dtype=torch.float32)
    classifier = PooledModel(inputs, Stack([Block(layer, norm="batch")]), 2, norm="batch")
    x = torch.randn(2, 8, 3, device="cpu", dtype=torch.float32)
    classifier(x, [8, 5]).sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in classifier.parameters())
