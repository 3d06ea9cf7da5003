"""A speech classifier that runs live on a stream of audio."""

from __future__ import annotations

import io
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from delayssm.models.pooled import PooledModel
from delayssm.storage import files
from delayssm.storage.model_files import CONFIG
from delayssm.storage.pretrained import Pretrained, read_about
from delayssm_lab import pretrained
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.tasks.signals import SpeechCommands
from delayssm_lab.training.checkpoint import model_directory
from delayssm_lab.training.run import Run, from_json


class Listener:
    """A trained causal model that classifies one stream of audio while it arrives in chunks of any size.

    Args:
        model: Model of a run on speech commands.
        run: The run that trained it.
    """

    def __init__(self, model: nn.Module, run: Run) -> None:
        causal = isinstance(run.model, StateSpaceSpec) and not run.model.layer.bidirectional
        if not (causal and isinstance(run.task, SpeechCommands) and isinstance(model, PooledModel)):
            raise ValueError(
                f"{run.name} is not a run of a causal model on speech commands; "
                "train one with: delayssm train sc-ar ds4d"
            )
        self.model, self.task = model, run.task
        self._state = model.init_state(1)
        self._pending = torch.empty(0, dtype=torch.int16)  # samples that do not fill a step of the model yet

    @staticmethod
    def load(directory: Path) -> Listener:
        """Return the listener in a directory: a saved model that a run has trained, or the run."""
        saved = model_directory(directory)
        model = Pretrained.from_pretrained(saved)
        run, _ = from_json({"run": read_about(saved).get("run"), "environment": {}}, saved / CONFIG)
        return Listener(model, run)

    @staticmethod
    def pretrained() -> Listener:
        """Return the listener that comes with this package, which knows ten words."""
        return Listener.load(pretrained.directory("listener"))

    @torch.no_grad()
    def hear(self, chunk: NDArray[np.int16]) -> Tensor:
        """Return the probability of each word after each step of a chunk of 16-bit samples at 16 kHz, (steps, words).

        A step of the model is `task.every` samples.
        """
        samples = torch.cat([self._pending, torch.tensor(chunk)])
        whole = len(samples) // self.task.every * self.task.every
        self._pending = samples[whole:]
        logits, self._state = self.model.stream(self.task.hear(samples[None, :whole]), self._state)
        return logits[0].softmax(-1)


def read_wav(path: Path) -> NDArray[np.int16]:
    """Return the samples of a WAV file with 16 bits, one channel and 16 kHz."""
    try:
        with wave.open(io.BytesIO(files.read(path))) as file:
            rate, channels, bits = file.getframerate(), file.getnchannels(), 8 * file.getsampwidth()
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} cannot be read as a WAV file: {error}") from error
    if (rate, channels, bits) != (SpeechCommands.rate, 1, 16):
        raise ValueError(
            f"{path} has {rate} Hz, {channels} channels, {bits} bit; the model needs {SpeechCommands.rate} Hz, one "
            f"channel, 16 bit. To convert it: sox {path} -r {SpeechCommands.rate} -c 1 -b 16 converted.wav"
        )
    return np.frombuffer(frames[: len(frames) // 2 * 2], "<i2").astype(np.int16)  # the last sample may be cut off


def chunks(samples: NDArray[np.int16], size: int) -> Iterator[NDArray[np.int16]]:
    """Yield the samples in chunks of a size, as a microphone delivers them; the last one may be shorter."""
    if size < 1:
        raise ValueError(f"a chunk has at least one sample, not {size}")
    for first in range(0, len(samples), size):
        yield samples[first : first + size]
