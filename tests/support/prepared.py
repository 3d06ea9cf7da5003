"""Small prepared data sets of random values, for tests of tasks and training."""

from pathlib import Path

import numpy as np
import pytest

from delayssm_lab.data.prepared.writer import Writer
from delayssm_lab.data.published.speech_commands import WORDS


def prepare_all(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepare every data set below `directory`, with a few dozen samples each."""
    monkeypatch.setenv("DELAYSSM_DATA", str(directory))
    random = np.random.default_rng(0)
    for name, pixels in (("mnist", 784), ("cifar10", 1024)):
        with Writer(name) as writer:
            for split, count in (("train", 40), ("test", 12)):
                writer.put(f"{split}_x", random.integers(0, 256, (count, pixels), np.uint8))
                writer.put(f"{split}_y", random.integers(0, 10, count).astype(np.uint8))
            _about(writer)
    with Writer("speech-commands") as writer:
        for split in ("train", "validation", "test"):
            writer.put(f"{split}_x", random.integers(-5000, 5000, (6, 16000)).astype(np.int16))
            writer.put(f"{split}_y", random.integers(0, 35, 6).astype(np.uint8))
        _about(writer, words=list(WORDS))
    with Writer("bidmc") as writer:
        writer.put("signals", random.normal(size=(10, 6000, 2)).astype(np.float32))
        writer.put("record", np.repeat(np.arange(10), 4).astype(np.int16))
        writer.put("start", np.tile(np.arange(0, 2000, 500), 10).astype(np.int32))
        for target, center in (("HR", 90.0), ("RR", 17.0), ("SpO2", 97.0)):
            values = random.normal(center, 3.0, 40)
            writer.put(target, np.where(np.arange(40) < 2, 0.0, values) if target == "RR" else values)
        _about(writer)
    for name, splits, texts, classes in (
        ("imdb", ("train", "test"), ("tokens", "bytes"), 2),
        ("listops", ("train", "validation", "test"), ("tokens",), 10),
        ("aan", ("train", "validation", "test"), ("a_tokens", "b_tokens"), 2),
    ):
        with Writer(name) as writer:
            for split in splits:
                for text in texts:
                    pieces = writer.ragged(f"{split}_{text}")
                    for length in random.integers(1, 90, 30):
                        pieces.append(random.integers(3, 18, length).astype(np.uint8))
                writer.put(f"{split}_y", random.integers(0, classes, 30).astype(np.uint8))
            _about(writer)
    for name, pixels in (("pathfinder32-14", 1024), ("pathfinder128-14", 16384)):
        with Writer(name) as writer:
            writer.put("x", random.integers(0, 256, (40, pixels), np.uint8))
            writer.put("y", random.integers(0, 2, 40).astype(np.uint8))
            _about(writer)


def _about(writer: Writer, **facts: object) -> None:
    writer.about(title="noise", origin="a test", missing=[], counts={}, **facts)
