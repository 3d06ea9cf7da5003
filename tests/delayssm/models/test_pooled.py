"""One answer for a sequence: as a whole, while it comes in, and for two documents."""

import copy
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from delayssm import DS4D, S4D, Block, PairModel, PooledModel, Stack, Tokens, Values
from delayssm.layers.norms import BatchNorm
from delayssm_lab import listener as listen
from delayssm_lab.display import Silent
from delayssm_lab.models import specs
from delayssm_lab.report.figures import running_predictions
from delayssm_lab.tasks.signals import SpeechCommands
from delayssm_lab.tasks.texts import Retrieval
from delayssm_lab.training import trainer as training
from delayssm_lab.training.run import Run, Training
from tests.support.prepared import prepare_all
from tests.support.runs import create


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
        state, found = model.init_state(2), []
        for chunk in x.split([5, 0, 1, 11], dim=1):
            y, state = model.stream(chunk, state)
            found.append(y)
        expected = torch.stack([model(x[:, : t + 1]) for t in range(17)], dim=1)
    torch.testing.assert_close(torch.cat(found, 1), expected, atol=1e-5, rtol=1e-5)


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
        found, _ = model.step(x[:, 0], state)
        torch.testing.assert_close(found[1], model(x[1:2, :1])[0], atol=1e-5, rtol=1e-5)


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
    """Also where only the last time is read, and whatever stands in the padding."""
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


def _spoiled(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    for row, length in enumerate(lengths.tolist()):
        x[row, length:] = float("nan")
    return x


def test_streaming_while_training_is_refused() -> None:
    model = _model("mean").train()
    with pytest.raises(RuntimeError, match="call"):
        model.stream(torch.randn(1, 2, 3), model.init_state(1))


def test_two_documents() -> None:
    spec = specs.DS4D(d_model=8, depth=1, d_state=4, norm="batch", bidirectional=True)
    model = Retrieval(30).build(spec).eval()
    assert isinstance(model, PairModel)
    first, second = torch.randint(3, 20, (2, 12)), torch.randint(3, 20, (2, 9))
    longer = torch.cat([first, torch.zeros(2, 5, dtype=torch.int64)], 1)
    answer = model(first, second)
    torch.testing.assert_close(model(longer, second, [12, 12], [9, 9]), answer, atol=1e-5, rtol=1e-5)
    a, b = model.encoder(first), model.encoder(second)
    torch.testing.assert_close(answer, model.head(torch.cat([a, b, a - b, a * b], 1)))
    assert not torch.allclose(model(second, first), answer)
    with pytest.raises(ValueError, match="outputs=None"):
        PairModel(_model("mean", inputs=Tokens(5, 8)), 2)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that has listened to noise for two steps."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("listen")
        prepare_all(place / "data", patch)
        spec = specs.DS4D(d_model=6, depth=2, d_state=4, norm="batch")
        how = Training(steps=2, batch_size=4, evaluate_every=1)
        task = SpeechCommands(pooling="last", every=50)
        directory = create(place / "run", Run(task=task, model=spec, training=how))
        training.train(directory, Silent())
        return directory


def test_audio_in_chunks_of_any_size(run: Path) -> None:
    samples = np.random.default_rng(0).integers(-9000, 9000, 16000).astype(np.int16)
    listener = listen.Listener(run)
    whole = listener.hear(samples)
    assert whole.shape == (320, 35)
    torch.testing.assert_close(whole.sum(1), torch.ones(320))
    with torch.no_grad():
        answer = listener.model(listener.task.hear(torch.from_numpy(samples)[None])).softmax(-1)[0]
    torch.testing.assert_close(whole[-1], answer, atol=1e-5, rtol=1e-4)
    for size in (1, 37, 50, 7000):
        again = listen.Listener(run)
        part = samples[:150] if size == 1 else samples
        found = torch.cat([again.hear(chunk) for chunk in listen.chunks(part, size)])
        torch.testing.assert_close(found, whole[: len(found)], atol=1e-6, rtol=1e-5)
        assert len(found) == len(part) // 50


def test_recordings_that_cannot_be_heard(tmp_path: Path, run: Path) -> None:
    path = tmp_path / "x.wav"
    path.write_bytes(b"RIFF no")
    with pytest.raises(ValueError, match=r"x.wav cannot be read as a WAV file"):
        listen.read_wav(path)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(2), file.setsampwidth(2), file.setframerate(44100)
        file.writeframes(bytes(400))
    with pytest.raises(ValueError, match=r"44100 Hz, 2 channels, 16 bit.*sox .*x.wav -r 16000"):
        listen.read_wav(path)
    with pytest.raises(ValueError, match="at least one sample"):
        next(listen.chunks(np.zeros(3, np.int16), 0))


@pytest.mark.usefixtures("data")
def test_only_causal_runs_can_listen(tmp_path: Path) -> None:
    spec = specs.S4D(d_model=4, depth=1, d_state=2, bidirectional=True)
    how = Training(steps=1, batch_size=2)
    directory = create(tmp_path / "run", Run(task=SpeechCommands(every=500), model=spec, training=how))
    training.train(directory, Silent())
    with pytest.raises(ValueError, match="delayssm train sc-ar ds4d"):
        listen.Listener(directory)


def test_the_picture_of_what_was_heard() -> None:
    probabilities = np.random.default_rng(0).dirichlet(np.ones(35), 20).astype(np.float32)
    figure = running_predictions(np.zeros(16000, np.int16), probabilities, SpeechCommands().words)
    waveform, rows, _ = figure.axes
    assert np.array_equal(rows.images[0].get_array(), probabilities.T)
    assert [label.get_text() for label in rows.get_yticklabels()] == list(SpeechCommands().words)
    assert SpeechCommands().words[probabilities[-1].argmax()] in rows.get_title(loc="right")
    assert waveform.get_xlim() == rows.get_xlim() == (0, 1)
