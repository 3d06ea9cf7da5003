"""Speech Commands: spoken words of at most a second, WORD/SPEAKER_nohash_N.wav, and two lists that hold clips out."""

from __future__ import annotations

import io
import math
import re
import wave
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.dataset import DataSet, Download, Reading, text
from delayssm_lab.data.published.trees import Tree

_RATE = 16_000
_LENGTH = 16_000
_CLIP = re.compile(r"([^/_][^/]*)/[^/]+\.wav")  # _background_noise_ is no word
_LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
WORDS = (
    "backward", "bed", "bird", "cat", "dog", "down", "eight", "five", "follow", "forward", "four", "go", "happy",
    "house", "learn", "left", "marvin", "nine", "no", "off", "on", "one", "right", "seven", "sheila", "six", "stop",
    "three", "tree", "two", "up", "visual", "wow", "yes", "zero",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SpeechCommands(DataSet):
    """Arrays: {train,validation,test}_x int16 (n, 16000), zeros after the end; _length int32; _y uint8: which word.

    about["words"] are the words in order; about["mean"] and ["std"] are of all values in train_x.

    Args:
        words: that are published.
    """

    name: str = "speech-commands"
    title: str = "Speech Commands v0.02"
    licence: str = "CC BY 4.0"
    page: str = "https://arxiv.org/abs/1804.03209"
    size: int = 2_428_923_189
    downloads: tuple[Download, ...] = (
        Download(
            "speech_commands_v0.02.tar.gz",
            "https://storage.googleapis.com/download.tensorflow.org/data/speech_commands_v0.02.tar.gz",
            "sha256:af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58",
        ),
    )
    counts: Mapping[str, int] = field(default_factory=lambda: {"train": 84_843, "validation": 9_981, "test": 11_005})
    landmark: str = r"[a-z]+/[0-9a-f]+_nohash_\d+\.wav"
    words: tuple[str, ...] = WORDS

    def _read(self, reading: Reading) -> dict[str, int]:
        clips = {name: match[1] for name in sorted(reading.tree.names) if (match := _CLIP.fullmatch(name))}
        words = self._words(reading, clips)
        splits = _splits(reading, clips)
        sizes = {split: sum(s == split for s in splits.values()) for split in self.counts}
        x = {s: reading.out.array(f"{s}_x", (n, _LENGTH), np.int16) for s, n in sizes.items()}
        y = {s: np.empty(n, np.uint8) for s, n in sizes.items()}
        length = {s: np.empty(n, np.int32) for s, n in sizes.items()}
        row = _numbered(splits)
        total, squares = 0, 0
        reading.total = len(clips)
        for name, content in reading.tree.each(clips):
            samples, split, at = _samples(reading.tree.where(name), content), splits[name], row[name]
            x[split][at, : len(samples)] = samples
            length[split][at] = len(samples)
            y[split][at] = words.index(clips[name])
            if split == "train":  # in whole numbers, which stay exact
                whole = samples.astype(np.int64)
                total, squares = total + int(whole.sum()), squares + int(whole @ whole)
            reading.step()
        for split in sizes:
            reading.out.put(f"{split}_length", length[split])
            reading.out.put(f"{split}_y", y[split])
        values = max(sizes["train"], 1) * _LENGTH
        mean = total / values
        reading.out.about(words=words, mean=mean, std=math.sqrt(squares / values - mean**2))
        return sizes

    def _words(self, reading: Reading, clips: Mapping[str, str]) -> list[str]:
        found = sorted(set(clips.values()))
        if unknown := [word for word in found if word not in self.words]:
            raise DataError(f"{reading.tree.place}: the folder {unknown[0]} is none of the published words")
        absent = [word for word in self.words if word not in found]
        reading.lacks([f"{len(absent)} of {len(self.words)} words: {', '.join(absent)}"] if absent else [])
        return found


def _splits(reading: Reading, clips: Mapping[str, str]) -> dict[str, str]:
    """Where each clip belongs: what no list names is for training."""
    splits = dict.fromkeys(clips, "train")
    for split, name in _LISTS.items():
        listed = _list(reading.tree, name)
        absent = [clip for clip in listed if clip not in splits]
        reading.lacks([f"{len(absent):,} clips of {name}, such as {absent[0]}"] if absent else [])
        for clip in listed:
            if splits.get(clip, "train") != "train":
                raise DataError(f"{reading.tree.where(name)}: {clip} is listed twice")
            if clip in splits:
                splits[clip] = split
    return splits


def _list(tree: Tree, name: str) -> list[str]:
    if name not in tree.names:
        raise DataError(f"{tree.where(name)}: this list is missing, and says which clips are held out; get it again")
    return text(tree.where(name), tree.read(name)).split()


def _numbered(splits: Mapping[str, str]) -> dict[str, int]:
    """The row of each clip among those of its split."""
    seen: dict[str, int] = {}
    rows = {}
    for name, split in splits.items():
        rows[name] = seen.get(split, 0)
        seen[split] = rows[name] + 1
    return rows


def _samples(where: str, content: bytes) -> NDArray[np.int16]:
    try:
        with wave.open(io.BytesIO(content)) as clip:
            form = clip.getnchannels(), clip.getsampwidth(), clip.getframerate()
            expected = clip.getnframes()
            samples = np.frombuffer(clip.readframes(expected), "<i2")
    except (wave.Error, EOFError, ValueError) as error:
        raise DataError(f"{where}: no whole wave file ({error}); get it again") from error
    if form != (1, 2, _RATE):
        raise DataError(f"{where}: {form[0]} channels of {8 * form[1]} bits at {form[2]} Hz, not 1 of 16 at {_RATE}")
    if len(samples) != expected or not 0 < len(samples) <= _LENGTH:
        raise DataError(
            f"{where}: {len(samples):,} samples, but it says {expected:,}, and 1 to {_LENGTH:,} are allowed"
        )
    return samples.astype(np.int16, copy=False)
