"""A classifier of speech that listens to a stream of audio."""

import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm_lab import listener as listen
from delayssm_lab.display import Silent
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.report.figures import running_predictions
from delayssm_lab.tasks.signals import SpeechCommands
from delayssm_lab.training import trainer as training
from delayssm_lab.training.run import Run, Training
from tests.support.prepared import prepare_all
from tests.support.runs import create


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run of a model that was trained on noise for two steps."""
    with pytest.MonkeyPatch.context() as patch:
        place = tmp_path_factory.mktemp("listen")
        prepare_all(place / "data", patch)
        spec = StateSpaceSpec(depth=2, block=BlockConfig(layer=DS4DConfig(6, 4), norm="batch"))
        how = Training(steps=2, batch_size=4, evaluate_every=1)
        task = SpeechCommands(pooling="last", every=50)
        directory = create(place / "run", Run(task=task, model=spec, training=how))
        training.train(directory, Silent())
        return directory


def test_audio_in_chunks_of_any_size(run: Path) -> None:
    samples = np.random.default_rng(0).integers(-9000, 9000, 16000).astype(np.int16)
    listener = listen.Listener.load(run)
    whole = listener.hear(samples)
    assert whole.shape == (320, 35)
    torch.testing.assert_close(whole.sum(1), torch.ones(320))
    with torch.no_grad():
        answer = listener.model(listener.task.hear(torch.from_numpy(samples)[None])).softmax(-1)[0]
    torch.testing.assert_close(whole[-1], answer, atol=1e-5, rtol=1e-4)
    for size in (1, 37, 50, 7000):
        again = listen.Listener.load(run)
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
    spec = StateSpaceSpec(depth=1, block=BlockConfig(layer=S4DConfig(4, 2, bidirectional=True)))
    how = Training(steps=1, batch_size=2)
    directory = create(tmp_path / "run", Run(task=SpeechCommands(every=500), model=spec, training=how))
    training.train(directory, Silent())
    with pytest.raises(ValueError, match="delayssm train sc-ar ds4d"):
        listen.Listener.load(directory)


def test_the_picture_of_what_was_heard() -> None:
    probabilities = np.random.default_rng(0).dirichlet(np.ones(35), 20).astype(np.float32)
    figure = running_predictions(np.zeros(16000, np.int16), probabilities, SpeechCommands().words)
    waveform, rows, _ = figure.axes
    assert np.array_equal(rows.images[0].get_array(), probabilities.T)
    assert [label.get_text() for label in rows.get_yticklabels()] == list(SpeechCommands().words)
    assert SpeechCommands().words[probabilities[-1].argmax()] in rows.get_title(loc="right")
    assert waveform.get_xlim() == rows.get_xlim() == (0, 1)
