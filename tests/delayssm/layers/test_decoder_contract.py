"""Decoders are what the model is, whatever a subclass makes of it, and can be copied."""

import copy
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from delayssm import DS4D, Block, PooledModel, SeriesModel, Stack, TokenModel, Values
from delayssm.layers.decoding import CompiledDecoder, Decoder


def _stack(kind: type[Stack] = Stack) -> Stack:
    return kind(Block(DS4D(8, 4, 20)) for _ in range(2))


MODELS: dict[str, Callable[[], Stack | TokenModel | SeriesModel | PooledModel]] = {
    "stack": _stack,
    "tokens": lambda: TokenModel(20, _stack()),
    "series": lambda: SeriesModel(Values(3, 8), _stack(), 2),
    "pooled": lambda: PooledModel(Values(3, 8), _stack(), 2),
}


def _input(model: object, batch_size: int) -> Tensor:
    if isinstance(model, TokenModel):
        return torch.randint(20, (batch_size,))
    return torch.randn(batch_size, 8 if isinstance(model, Stack) else 3)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda decoder: pickle.loads(pickle.dumps(decoder))])
@pytest.mark.parametrize("max_length", [None, 30])
def test_a_copy_goes_its_own_way(name: str, copied: Callable[[object], Decoder], max_length: int | None) -> None:
    model = MODELS[name]().eval()
    first = model.decoder(model.init_state(2, max_length))
    inputs = [_input(model, 2) for _ in range(4)]
    first(inputs[0])
    second = copied(first)
    first(inputs[1])
    y = first(inputs[2])
    second(inputs[1])
    assert torch.equal(second(inputs[2]), y)
    assert torch.equal(second(inputs[3]), first(inputs[3]))
    assert torch.equal(second.position, torch.tensor([4, 4]))


@pytest.mark.parametrize("name", MODELS)
def test_outputs_stay_what_they_were(name: str) -> None:
    model = MODELS[name]().eval()
    inputs = [_input(model, 2) for _ in range(5)]
    decoder, state = model.decoder(model.init_state(2)), model.init_state(2)
    outputs = [decoder(x) for x in inputs]
    for x, y in zip(inputs, outputs, strict=True):
        expected, state = model.step(x, state)
        torch.testing.assert_close(y, expected)


class Louder(Stack):
    def stream(self, x: Tensor, state: object, lengths: object = None) -> tuple[Tensor, object]:
        y, state = super().stream(x, state, lengths)
        return 2 * y, state


class Masked(TokenModel):
    """A model that never says the first eight tokens."""

    def stream(self, x: Tensor, state: object, lengths: object = None) -> tuple[Tensor, object]:
        y, state = super().stream(x, state, lengths)
        return y.index_fill(-1, torch.arange(8), -100.0), state


class Shifted(SeriesModel):
    def _answer(self, y: Tensor) -> Tensor:
        return super()._answer(y) + 100


class Doubled(PooledModel):
    def _normalise(self, y: Tensor, spans: object) -> Tensor:
        return 2 * super()._normalise(y, spans)


@pytest.mark.parametrize(
    "model",
    [
        _stack(Louder),
        TokenModel(20, _stack(Louder)),
        SeriesModel(Values(3, 8), _stack(Louder), 2),
        PooledModel(Values(3, 8), _stack(Louder), 2),
        Masked(20, _stack()),
        Shifted(Values(3, 8), _stack(), 2),
        Doubled(Values(3, 8), _stack(), 2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_subclass_decodes_as_it_steps(model: Stack | TokenModel | SeriesModel | PooledModel) -> None:
    model.eval()
    decoder, state = model.decoder(model.init_state(2)), model.init_state(2)
    for _ in range(5):
        x = _input(model, 2)
        expected, state = model.step(x, state)
        torch.testing.assert_close(decoder(x), expected)


def test_a_subclass_generates_what_it_says() -> None:
    model = Masked(20, _stack()).eval()
    assert min(model.generate([1, 2], 30, seed=0)) >= 8
    assert min(map(min, model.generate_batch([[1, 2], [3]], 30, seed=0))) >= 8


def test_small_integers_are_tokens() -> None:
    model = TokenModel(20, _stack()).eval()
    one, other = (model.decoder(model.init_state(2)) for _ in range(2))
    assert isinstance(one, CompiledDecoder)
    tokens = torch.tensor([3, 4])
    assert torch.equal(one(tokens.to(torch.int32)), other(tokens))
