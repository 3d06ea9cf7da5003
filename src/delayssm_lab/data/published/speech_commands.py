"""Speech Commands: recordings of single words of at most one second, WORD/SPEAKER_nohash_N.wav.

Two lists name the clips for validation and testing; all other clips are for training.
"""

from __future__ import annotations

import io
import math
import re
import wave
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.dataset import DataSet, Download, ReadContext, decode_utf8
from delayssm_lab.data.published.file_trees import FileTree

_RATE = 16_000
_LENGTH = 16_000
_CLIP = re.compile(r"([^/_][^/]*)/[^/]+\.wav")  # _background_noise_ is not a word
_LISTS = {"validation": "validation_list.txt", "test": "testing_list.txt"}
WORDS = (
    "backward", "bed", "bird", "cat", "dog", "down", "eight", "five", "follow", "forward", "four", "go", "happy",
    "house", "learn", "left", "marvin", "nine", "no", "off", "on", "one", "right", "seven", "sheila", "six", "stop",
    "three", "tree", "two", "up", "visual", "wow", "yes", "zero",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PublishedSpeechCommands(DataSet):
    """Published files of Speech Commands.

    Arrays: {train,validation,test}_x int16 (n, 16000), padded with zeros; _length int32, the number of samples before
    the padding; _y uint8, the index of the word. about["words"] lists the words in order. about["mean"] and
    about["std"] are the mean and standard deviation of train_x, padding included.

    Args:
        words: Published words.
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
    file_pattern: str = r"[a-z]+/[0-9a-f]+_nohash_\d+\.wav"
    words: tuple[str, ...] = WORDS

    def _read(self, context: ReadContext) -> dict[str, int]:
        tree, out = context.tree, context.out
        clips = {name: match[1] for name in sorted(tree.names) if (match := _CLIP.fullmatch(name))}
        words = self._present_words(context, clips)
        splits = _assign_splits(context, clips)
        counts = {split: sum(s == split for s in splits.values()) for split in self.counts}
        context.check_counts(counts)
        x = {split: out.array(f"{split}_x", (n, _LENGTH), np.int16) for split, n in counts.items()}
        y = {split: np.empty(n, np.uint8) for split, n in counts.items()}
        length = {split: np.empty(n, np.int32) for split, n in counts.items()}
        rows = _number_rows(splits)
        total, squares = 0, 0
        context.total = len(clips)
        for name, content in tree.read_each(clips, limits.CLIP_BYTES):
            samples, split, row = _read_samples(tree.path_of(name), content), splits[name], rows[name]
            x[split][row, : len(samples)] = samples
            length[split][row] = len(samples)
            y[split][row] = words.index(clips[name])
            if split == "train":  # sums of integers are exact
                integers = samples.astype(np.int64)
                total, squares = total + int(integers.sum()), squares + int(integers @ integers)
            context.advance()
        for split in counts:
            out.put(f"{split}_length", length[split])
            out.put(f"{split}_y", y[split])
        values = max(counts["train"], 1) * _LENGTH
        mean = total / values
        out.about(words=words, mean=mean, std=math.sqrt(max(0.0, squares / values - mean**2)))
        return counts

    def _present_words(self, context: ReadContext, clips: Mapping[str, str]) -> list[str]:
        present = sorted(set(clips.values()))
        if unknown := [word for word in present if word not in self.words]:
            raise DataError(f"{context.tree.path}: the folder {unknown[0]} is not a published word; remove it")
        missing = [word for word in self.words if word not in present]
        context.report_missing([f"{len(missing)} of {len(self.words)} words: {', '.join(missing)}"] if missing else [])
        return present


def _assign_splits(context: ReadContext, clips: Mapping[str, str]) -> dict[str, str]:
    """Return the split of each clip."""
    splits = dict.fromkeys(clips, "train")
    for split, name in _LISTS.items():
        listed = _read_list(context.tree, name)
        missing = [clip for clip in listed if clip not in splits]
        context.report_missing([f"{len(missing):,} clips of {name}, such as {missing[0]}"] if missing else [])
        for clip in listed:
            if splits.get(clip, "train") != "train":
                raise DataError(f"{context.tree.path_of(name)}: {clip} is listed twice; download it again")
            if clip in splits:
                splits[clip] = split
    return splits


def _read_list(tree: FileTree, name: str) -> list[str]:
    if name not in tree.names:
        raise DataError(f"{tree.path_of(name)}: the list of held-out clips is missing; download it again")
    return decode_utf8(tree.path_of(name), tree.read(name, limits.LIST_BYTES)).split()


def _number_rows(splits: Mapping[str, str]) -> dict[str, int]:
    """Return the row of each clip within its split."""
    counts: dict[str, int] = {}
    rows = {}
    for name, split in splits.items():
        rows[name] = counts.get(split, 0)
        counts[split] = rows[name] + 1
    return rows


def _read_samples(path: str, content: bytes) -> NDArray[np.int16]:
    try:
        with wave.open(io.BytesIO(content)) as clip:
            channels, width, rate = clip.getnchannels(), clip.getsampwidth(), clip.getframerate()
            expected = clip.getnframes()
            samples = np.frombuffer(clip.readframes(expected), "<i2")
    except (wave.Error, EOFError, RuntimeError, ValueError) as error:  # RuntimeError for chunks beyond the end
        reason = str(error) or "its sizes are wrong"
        raise DataError(f"{path}: not a complete wave file ({reason}); download it again") from error
    if (channels, width, rate) != (1, 2, _RATE):
        raise DataError(
            f"{path}: {channels} channels of {8 * width} bits at {rate} Hz instead of 1 of 16 bits at {_RATE} Hz; "
            "download it again"
        )
    if len(samples) != expected or not 0 < len(samples) <= _LENGTH:
        raise DataError(
            f"{path}: {len(samples):,} samples, but its header says {expected:,} and at most {_LENGTH:,} are expected; "
            "download it again"
        )
    return samples.astype(np.int16, copy=False)
