"""Models with one answer per sequence: in one pass, as a running answer, and for two documents."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from delayssm import DS4D, S4D, Block, PairModel, PooledModel, Spans, Stack, Tokens, Values
from delayssm.layers.norms import BatchNorm


def _model(pooling: str, norm: str | None = "batch", inputs: nn.Module | None = None) -> PooledModel:
    blocks = [Block(DS4D(8, 4, 20), norm="batch"), Block(S4D(8, 4), norm="batch", prenorm=norm is not None)]
    model = PooledModel(inputs or Values(3, 8), Stack(blocks), 5, pooling, norm)  # type: ignore[arg-type]
    for module in model.modules():
        if isinstance(module, BatchNorm):  # as after some training
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2.0)
    return model.eval()


every_pooling = pytest.mark.parametrize("pooling", ["mean", "last"])


@every_pooling
@pytest.mark.parametrize("norm", ["batch", "layer", None])
def test_a_running_answer_is_that_of_the_sequence_so_far(pooling: str, norm: str | None) -> None:
    model = _model(pooling, norm)
    x = torch.randn(2, 17, 3)
    with torch.no_grad():
        state, outputs = model.init_state(2), []
        for chunk in x.split([5, 0, 1, 11], dim=1):
            y, state = model.stream(chunk, state)
            outputs.append(y)
        expected = torch.stack([model(x[:, : t + 1]) for t in range(17)], dim=1)
    torch.testing.assert_close(torch.cat(outputs, 1), expected, atol=1e-5, rtol=1e-5)


@every_pooling
@pytest.mark.parametrize("norm", ["batch", "layer", None])
@pytest.mark.parametrize("inputs", [Values(3, 8), Tokens(7, 8)])
def test_a_decoder_answers_as_steps_do(pooling: str, norm: str | None, inputs: Values | Tokens) -> None:
    model = _model(pooling, norm, inputs)
    x = torch.randn(3, 12, 3) if isinstance(inputs, Values) else torch.randint(7, (3, 12))
    spans = Spans(start=torch.tensor([0, 2, 5]), stop=torch.tensor([6, 6, 6]))
    with torch.no_grad():
        _, state = model.stream(x[:, :6], model.init_state(3), spans)
        stepped, decoder = state.clone(), model.decoder(state)
        for t in range(6, 11):
            expected, stepped = model.step(x[:, t], stepped)
            torch.testing.assert_close(decoder(x[:, t]), expected, atol=1e-6, rtol=1e-6)
        answer, _ = model.step(x[:, 11], decoder.state)
        torch.testing.assert_close(answer, model.step(x[:, 11], stepped)[0], atol=1e-6, rtol=1e-6)
    with pytest.raises(ValueError, match=r"expected (the values of one time|one token per row), shape \(batch, ?3?\)"):
        decoder(x)


@every_pooling
@torch.no_grad()
def test_rows_of_a_decoder_come_and_go(pooling: str) -> None:
    model, x = _model(pooling), torch.randn(2, 10, 3)
    decoder, fresh = model.decoder(model.init_state(2)), model.decoder(model.init_state(2))
    for t in range(10):
        decoder(x[:, t])
    decoder.state.reset([0])
    other = model.init_state(1)
    _, other = model.stream(x[:1, :4], other)
    decoder.state.put([1], other)
    assert decoder.position.tolist() == [0, 4]
    answers = decoder(x[:, 0])
    torch.testing.assert_close(answers[0], fresh(x[:, 0])[0])
    expected = model(torch.cat([x[:1, :4], x[1:, :1]], 1))[0]
    torch.testing.assert_close(answers[1], expected, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_state_keeps_no_more_than_it_needs() -> None:
    model = _model("mean")
    _, state = model.stream(torch.randn(2, 500, 3), model.init_state(2))
    assert state.total.untyped_storage().nbytes() == state.total.nbytes
    with torch.inference_mode():
        _, state = model.stream(torch.randn(2, 5, 3), state)
    state.reset([0])
    assert state.position.tolist() == [0, 505]


@every_pooling
def test_a_sequence_of_no_length(pooling: str) -> None:
    model = _model(pooling)
    torch.testing.assert_close(model(torch.zeros(2, 0, 3)), model.head(torch.zeros(2, 8)))


@every_pooling
def test_streams_can_be_stepped_selected_reset_and_saved(pooling: str, tmp_path: Path) -> None:
    model = _model(pooling)
    x = torch.randn(3, 9, 3)
    with torch.no_grad():
        _, state = model.stream(x[:, :8], model.init_state(3))
        state.save(tmp_path / "s.safetensors")
        branch, again = state.select([2, 0]), model.load_state(tmp_path / "s.safetensors")
        expected, state = model.step(x[:, 8], state)
        assert model.step(x[:, 8], again)[0].equal(expected)
        torch.testing.assert_close(model.step(x[[2, 0], 8], branch)[0], expected[[2, 0]], atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(expected, model(x), atol=1e-5, rtol=1e-5)
        state.reset([1])
        first, _ = model.step(x[:, 0], state)
        torch.testing.assert_close(first[1], model(x[1:2, :1])[0], atol=1e-5, rtol=1e-5)


@every_pooling
def test_rows_that_end_earlier_keep_their_answer(pooling: str) -> None:
    model = _model(pooling)
    x, lengths = torch.randn(2, 10, 3), torch.tensor([10, 4])
    with torch.no_grad():
        y, state = model.stream(x, model.init_state(2), lengths)
        torch.testing.assert_close(torch.stack([y[0, 9], y[1, 3]]), model(x, lengths), atol=1e-5, rtol=1e-5)
        more, _ = model.stream(x[:, :1], state)
        whole = torch.cat([x[1:, :4], x[1:, :1]], 1)
        torch.testing.assert_close(more[1, 0], model(whole)[0], atol=1e-5, rtol=1e-5)


@every_pooling
def test_batch_statistics_are_over_all_valid_times(pooling: str) -> None:
    """Statistics ignore padding, whatever it contains, and use all times even where only the last one is read."""
    x, lengths = torch.randn(3, 12, 3), torch.tensor([12, 5, 8])
    a = _model(pooling).train()
    b = copy.deepcopy(a)
    answers = [model(padded, lengths) for model, padded in ((a, x), (b, _spoiled(x, lengths)))]
    torch.testing.assert_close(*answers)
    torch.testing.assert_close(a.norm.running_mean, b.norm.running_mean)
    features = a.backbone(a.inputs(x), lengths)
    valid = torch.cat([features[row, :length] for row, length in enumerate(lengths.tolist())])
    pooled = (features - valid.mean(0)) / (valid.var(0, unbiased=False) + a.norm.eps).sqrt()
    rows = [pooled[row, :length] for row, length in enumerate(lengths.tolist())]
    expected = a.head(torch.stack([row[-1] if pooling == "last" else row.mean(0) for row in rows]))
    torch.testing.assert_close(answers[0], expected, atol=1e-5, rtol=1e-5)
    answers[1].square().sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in b.parameters())


@every_pooling
@pytest.mark.parametrize("norm", ["batch", "layer", None])
@torch.no_grad()
def test_left_padding(pooling: str, norm: str | None) -> None:
    """Left-padded rows have the answers of the rows alone, in one pass and as chunks of running streams."""
    model = _model(pooling, norm)
    x, start = torch.randn(3, 12, 3), [0, 7, 12]
    padded = x.clone()
    for row, first in enumerate(start):
        padded[row, :first] = float("nan")
    spans = Spans(torch.full((3,), 12), torch.tensor(start))
    answer = model(padded, spans)
    for row in (0, 1):
        alone = model(x[row : row + 1, start[row] :])
        torch.testing.assert_close(answer[row], alone[0], atol=1e-5, rtol=1e-5)

    before = torch.randn(3, 6, 3)
    _, state = model.stream(before, model.init_state(3), [6, 2, 4])
    y, state = model.stream(padded, state, spans)
    assert state.position.tolist() == [18, 7, 4]
    more, _ = model.step(x[:, 0], state)
    for row, (first, length) in enumerate(zip(start, [6, 2, 4], strict=True)):
        tokens = torch.cat([before[row, :length], x[row, first:], x[row, :1]])[None]
        alone, _ = model.stream(tokens, model.init_state(1))
        assert not y[row, :first].any()
        torch.testing.assert_close(y[row, first:], alone[0, length:-1], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(more[row], alone[0, -1], atol=1e-5, rtol=1e-5)


def _spoiled(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    for row, length in enumerate(lengths.tolist()):
        x[row, length:] = float("nan")
    return x


@every_pooling
def test_a_detached_state_goes_on_without_its_history(pooling: str) -> None:
    model = _model(pooling)
    x = torch.randn(2, 9, 3, requires_grad=True)
    _, state = model.stream(x[:, :5], model.init_state(2))
    assert state.total.requires_grad
    loose = state.detach()
    assert not any(t.requires_grad for t in loose.tensors().values())
    y, _ = model.stream(x[:, 5:], loose)
    torch.testing.assert_close(y[:, -1], model(x), atol=1e-5, rtol=1e-5)
    y.sum().backward()
    assert not x.grad[:, :5].any()
    assert x.grad[:, 5:].any()


@torch.no_grad()
def test_a_state_that_moves_to_a_device() -> None:
    model = _model("mean")
    x = torch.randn(2, 9, 3)
    _, state = model.stream(x[:, :5], model.init_state(2))
    elsewhere = state.clone().to("meta")
    assert all(t.is_meta for t in elsewhere.tensors().values())
    assert all(memory.k.is_meta for memory in elsewhere.memories())
    assert elsewhere.nbytes == state.nbytes
    y, _ = model.stream(x[:, 5:], state.to("cpu"))
    torch.testing.assert_close(y[:, -1], model(x), atol=1e-5, rtol=1e-5)
    with pytest.raises(RuntimeError, match="spent"):
        state.to("cpu")


def test_streaming_while_training_is_refused() -> None:
    model = _model("mean").train()
    with pytest.raises(RuntimeError, match="call"):
        model.stream(torch.randn(1, 2, 3), model.init_state(1))


def test_two_documents() -> None:
    backbone = Stack([Block(DS4D(8, 4, 30, bidirectional=True), norm="batch")])
    model = PairModel(PooledModel(Tokens(30, 8), backbone, None), 2).eval()
    first, second = torch.randint(3, 20, (2, 12)), torch.randint(3, 20, (2, 9))
    longer = torch.cat([first, torch.zeros(2, 5, dtype=torch.int64)], 1)
    answer = model(first, second)
    torch.testing.assert_close(model(longer, second, [12, 12], [9, 9]), answer, atol=1e-5, rtol=1e-5)
    a, b = model.encoder(first), model.encoder(second)
    torch.testing.assert_close(answer, model.head(torch.cat([a, b, a - b, a * b], 1)))
    assert not torch.allclose(model(second, first), answer)
    with pytest.raises(ValueError, match="outputs=None"):
        PairModel(_model("mean", inputs=Tokens(5, 8)), 2)
