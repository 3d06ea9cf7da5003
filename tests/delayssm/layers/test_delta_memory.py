"""The memory that is addressed by content, in models."""

from pathlib import Path

import pytest
import torch

from delayssm import DS4D, Block, Config, DeltaMemory, Stack, TokenModel
from tests.support.numerics import relative_rms


def _model() -> TokenModel:
    torch.manual_seed(3)
    return TokenModel(20, Stack([Block(DS4D(8, 8, 30)), Block(DeltaMemory(8, heads=2, head_size=4))])).eval()


def test_what_followed_a_token_is_found_again() -> None:
    """With the right weights, a head answers a token with the one that followed it last."""
    layer = DeltaMemory(16, head_size=16, taps=2, dtype=torch.float64)
    eye, nothing = torch.eye(8, dtype=torch.float64), torch.zeros(8, 8, dtype=torch.float64)
    with torch.no_grad():
        # Channels 0 to 7 hold the token before, 8 to 15 the present one; inputs come twice, side by side.
        layer.convolution.weight.zero_()
        layer.convolution.bias.zero_()
        layer.convolution.weight[:8, 0, 0] = 1
        layer.convolution.weight[8:, 0, 1] = 1
        keys, queries = torch.cat([eye, nothing], 1), torch.cat([nothing, eye], 1)
        layer.qkv.weight.copy_(torch.cat([queries, 0 * queries, keys, 0 * keys, queries, 0 * queries]))
        layer.beta.weight.zero_()
        layer.beta.bias.fill_(50)
        layer.out.weight.copy_(torch.eye(16))
    tokens = torch.tensor([1, 5, 2, 6, 1])
    x = torch.nn.functional.one_hot(tokens, 8).double().repeat(1, 2).unsqueeze(0)
    y = layer(x)[0, -1, :8].detach()
    assert int(y.argmax()) == 5
    assert float(y[5]) == pytest.approx(1.0)


def test_a_model_is_saved_and_generates(tmp_path: Path) -> None:
    model = _model()
    model.save_pretrained(tmp_path)
    again = TokenModel.from_pretrained(tmp_path)
    prompt = [1, 2, 3, 4]
    tokens = list(model.generate(prompt, 20, temperature=0))
    assert tokens == list(again.generate(prompt, 20, temperature=0))
    greedy: list[int] = []
    for _ in range(20):
        greedy.append(int(model(torch.tensor([prompt + greedy]))[0, -1].argmax()))
    assert tokens == greedy
    assert Config.from_dict(model.config.to_dict()) == model.config


@torch.no_grad()
def test_streams_can_be_saved(tmp_path: Path) -> None:
    stack = _model().backbone
    x = torch.randn(2, 30, 8)
    _, state = stack.stream(x[:, :20], stack.init_state(2))
    assert "the last 2 inputs and 2 matrices of 4 x 4, 192 bytes a stream" in state.describe()
    state.save(tmp_path / "streams")
    y, _ = stack.stream(x[:, 20:], state)
    assert torch.equal(stack.stream(x[:, 20:], stack.load_state(tmp_path / "streams"))[0], y)


@torch.no_grad()
def test_a_decoder_calls_step() -> None:
    stack = _model().backbone
    x = torch.randn(2, 12, 8)
    decode = stack.decoder(stack.init_state(2, max_length=12))
    y = torch.stack([decode(x[:, t]).clone() for t in range(12)], 1)
    assert relative_rms(y, stack(x)) <= 1e-6
    with pytest.raises(ValueError, match="would reach 13 tokens"):
        decode(x[:, 0])


def test_gradients_of_bounded_streams_are_refused() -> None:
    layer = DeltaMemory(8)
    state = layer.init_state(1, max_length=9)
    with pytest.raises(RuntimeError, match="a state with max_length has no gradients"):
        layer.stream(torch.randn(1, 3, 8), state)
    with pytest.raises(ValueError, match="belongs to another module"):
        DeltaMemory(8).stream(torch.randn(1, 3, 8), layer.init_state(1))


def test_autocast_keeps_the_memory_in_float32() -> None:
    layer, x = DeltaMemory(8), torch.randn(2, 40, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        y, state = layer.stream(x, layer.init_state(2))
    assert state.memory.S.dtype == torch.float32
    assert relative_rms(y, layer(x)) <= 3e-2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 0}, "heads must be a whole number of at least 1, not 0"),
        ({"taps": 0}, "taps must be"),
        ({"keys": 3}, "its options are"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        DeltaMemory(8, **options)


def test_a_state_in_a_graph_is_not_changed() -> None:
    """Looking ahead without gradients leaves the graph of a state as it is."""
    layer, x = DeltaMemory(8, head_size=4), torch.randn(2, 9, 8)
    y, state = layer.stream(x, layer.init_state(2))
    later, _ = layer.stream(x, state)
    with torch.no_grad():
        layer.stream(x, state)
    (y.sum() + later.sum()).backward()
    assert layer.qkv.weight.grad is not None


def test_a_batch_of_no_rows() -> None:
    assert DeltaMemory(8)(torch.zeros(0, 5, 8)).shape == (0, 5, 8)
