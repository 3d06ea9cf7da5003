"""Models of signals keep the contract of every module, and feed their own answers back."""

import pytest
import torch

from delayssm import DS4D, S4D, Block, SeriesModel, Spans, Stack, Values
from delayssm.layers.decoding import CompiledDecoder
from tests.support.numerics import relative_rms

F, OUT, H = 3, 2, 8


def _model(features: int = F, outputs: int = OUT) -> SeriesModel:
    torch.manual_seed(2)
    return SeriesModel(Values(features, H), Stack([Block(DS4D(H, 8, 60)), Block(S4D(H, 8))]), outputs).eval()


@pytest.mark.parametrize("max_length", [None, 50])
@torch.no_grad()
def test_one_pass_is_any_chunking(backend: str, max_length: int | None) -> None:
    model, x = _model(), torch.randn(3, 50, F)
    whole = model(x)
    assert whole.shape == (3, 50, OUT)
    y, state = model.stream(x[:, :17], model.init_state(3, max_length))
    outputs = [y]
    for t in range(17, 25):
        y, state = model.step(x[:, t], state)
        outputs.append(y[:, None])
    decoder = model.decoder(state)
    outputs += [decoder(x[:, t])[:, None] for t in range(25, 40)]
    y, _ = model.stream(x[:, 40:], decoder.state)
    assert relative_rms(torch.cat([*outputs, y], 1), whole) <= 1e-6


def test_decoding_is_compiled() -> None:
    model = _model()
    assert isinstance(model.decoder(model.init_state(1))._stack, CompiledDecoder)


def test_padding_changes_nothing() -> None:
    model, x = _model(), torch.randn(2, 12, F)
    x[1, :5] = float("nan")
    y = model(x, lengths=Spans(torch.tensor([12, 12]), torch.tensor([0, 5])))
    assert not y[1, :5].any()
    assert relative_rms(y[1, 5:], model(x[1:, 5:])[0]) <= 1e-6
    at = torch.tensor([[11], [11]])
    assert relative_rms(model(x[:1].expand(2, -1, -1), at=at), model(x[:1])[:, -1:].expand(2, -1, -1)) <= 1e-6


@torch.no_grad()
def test_answers_are_fed_back(backend: str) -> None:
    """A rollout is what one pass gives for the values that it has made itself."""
    model, x = _model(OUT, OUT), torch.randn(2, 20, OUT)
    _, state = model.stream(x[:, :-1], model.init_state(2))
    answers, state = model.rollout(x[:, -1], state, 6)
    assert answers.shape == (2, 6, OUT)
    assert state.position.tolist() == [25, 25]
    whole = model(torch.cat([x, answers[:, :-1]], 1))
    assert relative_rms(answers, whole[:, -6:]) <= 1e-6


@torch.no_grad()
def test_some_values_are_known_beforehand() -> None:
    model, x, known = _model(), torch.randn(2, 20, F), torch.randn(2, 5, F - OUT)
    _, state = model.stream(x[:, :-1], model.init_state(2, max_length=25))
    answers, _ = model.rollout(x[:, -1], state, 6, known)
    whole = model(torch.cat([x, torch.cat([answers[:, :-1], known], 2)], 1))
    assert relative_rms(answers, whole[:, -6:]) <= 1e-6


def test_a_model_with_more_answers_than_values_cannot_be_fed() -> None:
    model = SeriesModel(Values(1, 8), Stack([Block(S4D(8, 4))]), outputs=3).eval()
    with pytest.raises(ValueError, match="1 values go in and 3 come out, so this model cannot be fed its own answers"):
        model.rollout(torch.zeros(2, 1), model.init_state(2), 4)


def test_wrong_input() -> None:
    model = _model()
    state = model.init_state(2)
    x = torch.randn(2, F)
    for call, message in (
        (lambda: model.rollout(x, state, 0), "steps must be a whole number of at least 1, not 0"),
        (lambda: model.rollout(x, state, 3), r"3 values go in and 2 come out, .* shape \(2, 2, 1\), not nothing"),
        (lambda: model.rollout(x, state, 3, x), r"known values of shape \(2, 2, 1\), not shape \(2, 3\)"),
        (lambda: model.rollout(x[:1], state, 1, x), "holds 2 streams, but x has 1 rows"),
        (lambda: model.step(x.unsqueeze(1), state), "values of one time"),
        (lambda: model.decoder(state)(x.unsqueeze(1)), "values of one time"),
        (lambda: model.decoder(state)(x[:1]), "holds 2 streams"),
        (lambda: model(torch.randn(2, 5, F + 1)), "width 4, but this module has features = 3"),
        (lambda: SeriesModel(Values(F, H + 1), Stack([Block(S4D(H))]), OUT), "width 9, but the backbone has 8"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert state.position.tolist() == [0, 0]
