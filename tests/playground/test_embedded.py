"""What is embedded into the playground is what it was made of, and pages are light."""

import hashlib
import json
import re

import numpy as np
import pytest
import torch

from delayssm import Pretrained
from delayssm.export.streaming_session import StreamingSession
from delayssm_lab import pretrained
from docs import embed
from tests.playground.conftest import PLAYGROUND

PAGES = sorted(path.name for path in PLAYGROUND.glob("*.html"))


@pytest.mark.parametrize("name", ["listener", "mackey-glass"])
def test_models_are_up_to_date(name: str) -> None:
    """They answer as the models of the package do, to a stream of 300 times."""
    model = Pretrained.from_pretrained(pretrained.directory(name)).eval()
    x = torch.randn(1, 300, 1)
    with torch.no_grad():
        expected, _ = model.stream(x, model.init_state(1))
    session = StreamingSession(embed.unpacked(f"models/{name}.onnx"))
    found = np.concatenate([session(x[:, i : i + 30].numpy()) for i in range(0, 300, 30)], axis=1)
    assert np.abs(found - expected.numpy()).max() < 1e-5 * expected.abs().max(), "run `python -m docs.embed`"
    inputs = embed.listener_inputs() if name == "listener" else embed.forecaster_inputs()
    about = {key: value for key, value in session.about.items() if key != "model"}
    expected_about = json.loads(json.dumps({**about, **inputs}))
    assert json.loads(embed.unpacked(f"models/{name}.json")) == expected_about, "run `python -m docs.embed`"


def test_clips_are_up_to_date() -> None:
    for clip in embed.clips():
        assert embed.unpacked(f"clips/{clip.name}") == clip.read_bytes(), "run `python -m docs.embed`"
    assert len(list((PLAYGROUND / "clips").glob("*.wav.js"))) == len(embed.clips()) == 6


def test_the_runtime_is_what_its_note_says() -> None:
    note = (PLAYGROUND / "runtime" / "README.txt").read_text()
    sums = dict(re.findall(r"^  (\S+) +([0-9a-f]{64})$", note, re.MULTILINE))
    assert list(sums) == [embed.INTERFACE, *embed.LOADED]
    contents = [(PLAYGROUND / "runtime" / embed.INTERFACE).read_bytes()]
    contents += [embed.unpacked(f"runtime/{name}") for name in embed.LOADED]
    assert [hashlib.sha256(content).hexdigest() for content in contents] == list(sums.values())
    version = re.search(r"onnxruntime-web ([\d.]+),", note)
    assert version is not None
    assert f"v{version[1]}".encode() in contents[0][:200]
    assert "MIT License" in (PLAYGROUND / "runtime" / "LICENSE").read_text()


def test_a_damaged_script_names_the_command() -> None:
    with pytest.raises(ValueError, match=r"runtime/ort.wasm.min.js does not hold runtime/ort.wasm.min; .*docs.embed"):
        embed.unpacked("runtime/ort.wasm.min")


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_light_and_whole(name: str) -> None:
    page = (PLAYGROUND / name).read_text()
    parts = [part for part in re.findall(r'(?:src|href)="([^"#]+)', page) if ":" not in part]
    assert all((PLAYGROUND / part).is_file() for part in parts)
    with_page = [PLAYGROUND / part for part in parts if part.endswith((".js", ".css"))]
    assert len(page) + sum(path.stat().st_size for path in with_page) < 2_000_000
    assert [path.name for path in with_page if path.parent != PLAYGROUND] == []  # the runtime comes when it is needed


def test_every_page_is_linked() -> None:
    for name in PAGES:
        linked = re.findall(r'<a href="(\w+\.html)"', (PLAYGROUND / name).read_text())
        assert sorted(linked) == PAGES
