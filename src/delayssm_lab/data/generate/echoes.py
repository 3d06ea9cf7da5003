"""A loudspeaker whose signal comes back into a microphone: delayed, attenuated and filtered copies of it, and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def speech_like(count: int, length: int, random: np.random.Generator) -> Array:
    """Return noise (count, length) that is coloured and modulated like speech, with variance 1.

    Its spectrum falls with the frequency f as 1 / (1 + (16 f)^2), f = 1/2 being the highest, above a floor of 1 %, and
    its loudness changes within some hundreds of samples.
    """
    if length < 400:
        raise ValueError(f"signals of {length} samples are too short to be modulated; take at least 400")
    frequencies = np.fft.rfftfreq(length)
    spectrum = np.fft.rfft(random.standard_normal((count, length)))
    coloured = np.fft.irfft(spectrum * (1 / (1 + (16 * frequencies) ** 2) + 0.01), length)
    slow = np.fft.irfft(np.fft.rfft(random.standard_normal((count, length))) * (frequencies < 1 / 300), length)
    loudness = np.exp(slow / slow.std())
    signals: Array = coloured * loudness / np.std(coloured * loudness)
    return signals


@dataclass(frozen=True)
class EchoPath:
    """A sum of echoes, each a Hann window around its delay.

    Args:
        delays: Middle of each echo, in samples.
        gains: Gain of each echo.
        widths: Samples on each side of the middle that its window covers.
    """

    delays: tuple[int, ...]
    gains: tuple[float, ...]
    widths: tuple[int, ...]

    @classmethod
    def draw(cls, count: int, length: int, seed: int) -> EchoPath:
        """Return a random path with so many echoes, the later the weaker, and a response of at most `length`."""
        random = np.random.default_rng(seed)
        widths = random.integers(1, 8, count)
        delays = np.sort(random.choice(np.arange(16, length - 16), count, replace=False))
        gains = random.choice([-1.0, 1.0], count) * random.uniform(0.5, 1.0, count) * 0.8 ** np.arange(count)
        return cls(tuple(delays.tolist()), tuple(gains.tolist()), tuple(widths.tolist()))

    def response(self, length: int) -> Array:
        """Return the impulse response, (length,)."""
        response = np.zeros(length)
        for delay, gain, width in zip(self.delays, self.gains, self.widths, strict=True):
            window = np.hanning(2 * width + 3)[1:-1]
            response[delay - width : delay + width + 1] += gain * window / window.sum()
        return response


class Recording(NamedTuple):
    """What a loudspeaker plays, what a microphone hears, and how much of that is echo: (signals, length) each."""

    played: Array
    heard: Array
    echo: Array


def record(path: EchoPath, near: float, count: int, length: int, random: np.random.Generator) -> Recording:
    """Return recordings that begin in silence.

    Args:
        path: Path of the echo.
        near: Level of the near end, speech-like, too, relative to the echo in decibels.
        count: Number of recordings.
        length: Samples of each.
        random: Source of the signals.
    """
    played, near_end = speech_like(count, length, random), speech_like(count, length, random)
    echo = convolved(played, path.response(length))
    return Recording(played, echo + 10 ** (near / 20) * echo.std() * near_end, echo)


def convolved(signals: Array, response: Array) -> Array:
    """Return signals (count, length) after a filter with this impulse response."""
    length = signals.shape[1]
    size = length + len(response)
    out: Array = np.fft.irfft(np.fft.rfft(signals, size) * np.fft.rfft(response, size), size)[:, :length]
    return out
