"""Models of tokens keep the contract of every module, and generate."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from delayssm import DS4D, S4D, Block, Spans, Stack, TokenModel, Tokens, Values
from delayssm.models.sampling import Sampling
from tests.support.numerics import relative_rms

V = 20


def _model(layer: Callable[[], nn.Module] = lambda: DS4D(8, 32, 60)) -> TokenModel:
    torch.manual_seed(2)
    return TokenModel(V, Stack(Block(layer()) for _ in range(2))).eval()


@pytest.mark.parametrize("layer", [lambda: DS4D(8, 32, 60), lambda: S4D(8, 8)], ids=["DS4D", "S4D"])
@pytest.mark.parametrize("max_length", [None, 50])
@torch.no_grad()
def test_one_pass_is_any_chunking(backend: str, layer: Callable[[], nn.Module], max_length: int | None) -> None:
    model = _model(layer)
    tokens = torch.randint(0, V, (3, 50))
    whole = model(tokens)
    assert whole.shape == (3, 50, V)
    y, state = model.stream(tokens[:, :17], model.init_state(3, max_length))
    outputs = [y]
    for t in range(17, 30):
        y, state = model.step(tokens[:, t], state)
        outputs.append(y[:, None])
    decoder = model.decoder(state)
    outputs += [decoder(tokens[:, t]).clone()[:, None] for t in range(30, 40)]
    y, state = model.stream(tokens[:, 40:], decoder.state)
    outputs.append(y)
    assert relative_rms(torch.cat(outputs, 1), whole) <= 1e-6


def test_padding_changes_nothing() -> None:
    model = _model()
    tokens = torch.randint(0, V, (2, 12))
    tokens[1, 7:] = -100  # not a token, but it does not count
    y = model(tokens, lengths=[12, 7])
    assert not y[1, 7:].any()
    assert relative_rms(y[1, :7], model(tokens[1:, :7])[0]) <= 1e-6
    y.square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())


@torch.no_grad()
def test_left_padding(backend: str) -> None:
    """Left-padded prompts of different lengths are the prompts alone, in one pass and as a chunk of a stream."""
    model = _model()
    tokens, start = torch.randint(0, V, (3, 12)), [0, 7, 12]
    padded = tokens.clone()
    for row, first in enumerate(start):
        padded[row, :first] = -100
    spans = Spans(torch.full((3,), 12), torch.tensor(start))
    y = model(padded, spans)
    assert not y[1, :7].any()
    assert not y[2].any()
    assert relative_rms(y[1, 7:], model(tokens[1:2, 7:])[0]) <= 1e-6

    before = torch.randint(0, V, (3, 6))
    _, state = model.stream(before, model.init_state(3, max_length=20), [6, 2, 4])
    y, state = model.stream(padded, state, spans)
    more, state = model.step(tokens[:, 0], state)
    assert state.position.tolist() == [19, 8, 5]
    for row, (first, length) in enumerate(zip(start, [6, 2, 4], strict=True)):
        whole = model(torch.cat([before[row, :length], tokens[row, first:], tokens[row, :1]])[None])[0]
        assert not y[row, :first].any()
        if first < 12:
            assert relative_rms(y[row, first:], whole[length:-1]) <= 1e-6
        assert relative_rms(more[row], whole[-1]) <= 1e-6


def test_parameters() -> None:
    """The paper's S4D has 167,310 parameters for the copy task."""
    model = TokenModel(100, Stack(Block(S4D(122, 64)) for _ in range(2)))
    block = 3 * 122 * 64 + 2 * 122**2 + 6 * 122
    assert sum(p.numel() for p in model.parameters()) == 2 * block + 2 * 100 * 122 + 2 * 122


@torch.no_grad()
def test_wrong_tokens() -> None:
    model = _model()
    state = model.init_state(2)
    for call in (
        lambda t: model(t[:, None]),
        lambda t: model.stream(t[:, None], state),
        lambda t: model.step(t, state),
        lambda t: model.decoder(state)(t),
        lambda t: next(model.generate(t, 1)),
    ):
        with pytest.raises(ValueError, match="token 20 is not a number from 0 to 19"):
            call(torch.tensor([1, 20]))
        with pytest.raises(ValueError, match="token -1 is not"):
            call(torch.tensor([-1, 3]))
    assert state.position.tolist() == [0, 0]
    with pytest.raises(TypeError, match="whole numbers"):
        model(torch.randn(2, 3))
    with pytest.raises(ValueError, match=r"shape \(batch, length\), not \(3,\)"):
        model(torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match="one token per row"):
        model.step(torch.tensor([[1], [2]]), state)
    with pytest.raises(ValueError, match="holds 2 streams, but x has 3 rows"):
        model.step(torch.tensor([1, 2, 3]), state)
    with pytest.raises(ValueError, match="vocab_size must be a whole number of at least 1"):
        TokenModel(0, Stack([Block(S4D(4))]))
    for layer in (Tokens, Values):
        with pytest.raises(ValueError, match="d_model must be a whole number of at least 1, not -1"):
            layer(2, -1)


@torch.no_grad()
def test_greedy_generation_is_the_most_likely_token(backend: str) -> None:
    model = _model()
    generated = list(model.generate([3, 1, 4], 25, temperature=0))
    tokens = [3, 1, 4]
    for _ in range(25):
        tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    assert generated == tokens[3:]


def test_generation() -> None:
    model = _model()
    prompt = torch.tensor([3, 1, 4])
    first = list(model.generate(prompt, 30, seed=1))
    assert first == list(model.generate(prompt.tolist(), 30, seed=1))
    assert first != list(model.generate(prompt, 30, seed=2))
    assert len({tuple(model.generate(prompt, 30)) for _ in range(3)}) == 3  # without a seed, never the same
    stop = first[12]
    assert list(model.generate(prompt, 30, seed=1, stop=stop)) == first[: first.index(stop)]
    assert list(model.generate(prompt, 30, seed=1, stop=[stop])) == first[: first.index(stop)]
    assert list(model.generate(prompt, 0)) == []
    assert torch.is_grad_enabled()
    stream = model.generate(prompt, 10**9, seed=1, top_k=5)  # nothing is computed that nobody asks for
    assert [next(stream) for _ in range(3)] == list(model.generate(prompt, 3, seed=1, top_k=5))
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1.0}, "temperature must be a number of at least 0, not -1.0"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"top_k": 0}, "top_k must be a whole number of at least 1"),
        ({"top_k": 1.5}, "top_k must be a whole number of at least 1"),
        ({"top_p": 0.0}, r"top_p must lie in \(0, 1\]"),
        ({"top_p": 1.5}, "top_p must lie"),
        ({"stop": 20}, r"stop has \[20\], but tokens are numbers from 0 to 19"),
        ({"max_new_tokens": -1}, "max_new_tokens must be a whole number of at least 0, not -1"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be a whole number"),
        ({"stop": [1.5]}, "a token of stop must be a whole number of at least 0, not 1.5"),
        ({"stop": True}, "a token of stop must be a whole number"),
        ({"seed": -1}, "seed must be a whole number of at least 0, not -1"),
        ({"prompt": []}, "at least one token"),
    ],
)
def test_wrong_settings_are_refused_at_once(arguments: dict[str, object], message: str) -> None:
    settings = {"prompt": [1, 2], "max_new_tokens": 3, **arguments}
    with pytest.raises(ValueError, match=message):
        _model().generate(**settings)


@pytest.mark.parametrize("prompt", ["text", [1.5], 3, [[1, 2], [3]], [None]])
def test_a_prompt_that_is_none(prompt: object) -> None:
    with pytest.raises(TypeError, match="tokens"):
        _model().generate(prompt, 3)


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"seed": 3}, {"seed": 3, "stop": [1, 2, 3], "top_p": 0.9}])
def test_batches_are_their_rows(backend: str, settings: dict[str, object]) -> None:
    model, prompts = _model(), [[1, 2, 3], [4], torch.tensor([5, 6, 7, 8, 9])]
    together = model.generate_batch(prompts, 12, **settings)
    for row, (prompt, tokens) in enumerate(zip(prompts, together, strict=True)):
        alone = {**settings, "seed": settings["seed"] + row} if "seed" in settings else settings
        assert tokens == list(model.generate(prompt, 12, **alone))
    assert model.generate_batch([], 3) == []
    assert model.generate_batch(prompts, 0) == [[], [], []]


def test_sampling_at_the_limits() -> None:
    logits = torch.tensor([0.1, 0.4, 0.2, -float("inf")])
    for sampling in (Sampling(temperature=1e-40), Sampling(temperature=5e-324), Sampling(top_p=1e-300)):
        assert sampling.probabilities(logits).tolist() == [0, 1, 0, 0]
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="logits are not finite"):
            Sampling().probabilities(torch.tensor([0.0, wrong]))


def test_sampling() -> None:
    logits = torch.tensor([0.1, 0.4, 0.2, 0.3]).log()
    plain = Sampling().probabilities(logits)
    assert torch.allclose(plain, logits.exp())
    assert torch.allclose(Sampling(temperature=0.5).probabilities(logits), logits.exp() ** 2 / 0.3)
    assert Sampling(temperature=0).probabilities(logits).tolist() == [0, 1, 0, 0]
    assert torch.allclose(Sampling(top_k=2).probabilities(logits), torch.tensor([0, 4 / 7, 0, 3 / 7]))
    assert torch.allclose(Sampling(top_k=2.0).probabilities(logits), torch.tensor([0, 4 / 7, 0, 3 / 7]))
    assert torch.allclose(Sampling(top_k=9).probabilities(logits), plain)
    assert torch.allclose(Sampling(top_p=0.5).probabilities(logits), torch.tensor([0, 4 / 7, 0, 3 / 7]))
    assert torch.allclose(Sampling(top_p=0.3).probabilities(logits), torch.tensor([0.0, 1, 0, 0]))
    assert torch.allclose(Sampling(top_p=1.0).probabilities(logits), plain)
    generator = torch.Generator().manual_seed(0)
    draws = torch.tensor([Sampling().draw(logits, generator) for _ in range(4000)])
    assert torch.allclose(draws.bincount(minlength=4) / 4000, logits.exp(), atol=0.03)
