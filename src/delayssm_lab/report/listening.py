"""A classifier of speech used live: audio comes in chunks of any size, and a running answer goes out."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from delayssm.models.pooled import PooledModel
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.report.drawing import panels
from delayssm_lab.tasks.signals import SpeechCommands
from delayssm_lab.training.evaluate import load_model


class Listener:
    """A trained model on one stream of audio."""

    def __init__(self, directory: Path) -> None:
        model, run = load_model(directory)
        causal = isinstance(run.model, StateSpaceSpec) and not run.model.layer.bidirectional
        if not (causal and isinstance(run.task, SpeechCommands) and isinstance(model, PooledModel)):
            raise ValueError(f"{directory} is no run that can listen; train one with: delayssm train sc-ar ds4d")
        self.model, self.task = model, run.task
        self._state = model.init_state(1)
        self._waiting = torch.empty(0, dtype=torch.int16)

    @torch.no_grad()
    def hear(self, samples: NDArray[np.int16]) -> Tensor:
        """The probability of each word after each time of a chunk of 16-bit samples at 16 kHz, (times, words)."""
        heard = torch.cat([self._waiting, torch.tensor(samples)])
        whole = len(heard) // self.task.every * self.task.every
        self._waiting = heard[whole:]  # less than one time of the model
        answers, self._state = self.model.stream(self.task.hear(heard[None, :whole]), self._state)
        return answers[0].softmax(-1)


def read(path: Path) -> NDArray[np.int16]:
    """The samples of a recording: WAV, 16 bit, one channel, 16 kHz."""
    try:
        with wave.open(str(path)) as file:
            found = (file.getframerate(), file.getnchannels(), 8 * file.getsampwidth())
            frames = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise ValueError(f"{path} is no WAV file that can be read: {error}") from error
    wanted = (SpeechCommands.rate, 1, 16)
    if found != wanted:
        raise ValueError(
            f"{path} has {found[0]} Hz, {found[1]} channels, {found[2]} bit; a model hears {wanted[0]} Hz, one "
            f"channel, {wanted[2]} bit. To convert it: sox {path} -r {wanted[0]} -c 1 -b {wanted[2]} converted.wav"
        )
    return np.frombuffer(frames, "<i2").astype(np.int16)


def chunks(samples: NDArray[np.int16], size: int) -> Iterator[NDArray[np.int16]]:
    """As a microphone gives them."""
    if size < 1:
        raise ValueError(f"a chunk has at least one sample, not {size}")
    for first in range(0, len(samples), size):
        yield samples[first : first + size]


def figure(samples: NDArray[np.int16], probabilities: NDArray[np.float32], words: tuple[str, ...]) -> Figure:
    """Running probabilities, (times, words), below the waveform: a row for each word, dark where it is likely."""
    drawn, (wave_axis, axis) = panels(2, width=9, height=2.6, columns=1)
    seconds = len(samples) / SpeechCommands.rate
    wave_axis.plot(np.arange(len(samples)) / SpeechCommands.rate, samples / 2**15, color="#555555", linewidth=0.5)
    wave_axis.set_ylabel("waveform")
    wave_axis.set_xlim(0, seconds)
    extent = (0, seconds, len(words) - 0.5, -0.5)
    rows = axis.imshow(probabilities.T, "Blues", vmin=0, vmax=1, aspect="auto", extent=extent, interpolation="nearest")
    final = int(probabilities[-1].argmax())
    axis.set_yticks(range(len(words)), words, fontsize=9 if len(words) <= 12 else 4)
    axis.get_yticklabels()[final].set_fontweight("bold")
    axis.set_title(f"at the end: {words[final]}, {probabilities[-1, final]:.2f}", loc="right", fontsize=10)
    axis.set_xlabel("seconds")
    drawn.colorbar(rows, ax=axis, label="probability")
    return drawn
