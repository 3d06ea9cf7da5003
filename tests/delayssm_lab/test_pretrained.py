"""Tests of the small trained models that come with the package."""

from pathlib import Path

import pytest
import torch

from delayssm import Pretrained
from delayssm_lab import pretrained
from delayssm_lab.listener import Listener, chunks, read_wav

MODELS = [path.parent for path in sorted(Path(pretrained.__file__).parent.glob("*/model.safetensors"))]


@pytest.mark.parametrize("directory", MODELS, ids=lambda path: path.name)
def test_each_is_small_and_says_how_it_was_made(directory: Path) -> None:
    assert pretrained.directory(directory.name) == directory
    assert sum(path.stat().st_size for path in directory.iterdir()) < 2_000_000
    card = (directory / "README.md").read_text()
    assert "`delayssm reproduce " in card
    parameters = sum(p.numel() for p in Pretrained.from_pretrained(directory).parameters())
    assert f"{parameters:,} parameters" in card


def test_there_are_two() -> None:
    assert [path.name for path in MODELS] == ["listener", "mackey-glass"]
    with pytest.raises(FileNotFoundError, match="no model 'other' comes with this package; there are listener, mackey"):
        pretrained.directory("other")


def test_the_listener_hears_a_word() -> None:
    listener = Listener.pretrained()
    clip = read_wav(pretrained.directory("listener") / "yes.wav")
    probabilities = torch.cat([listener.hear(chunk) for chunk in chunks(clip, 1000)])
    assert listener.task.words[int(probabilities[-1].argmax())] == "yes"
