"""Models on the Hugging Face Hub, through its own client, with a hub on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from delayssm import DS4D, Block, Stack, TokenModel
from delayssm.storage.model_files import CARD, CONFIG, WEIGHTS
from tests.support import hub

UPLOAD = """
import sys
from delayssm import TokenModel
model = TokenModel.from_pretrained(sys.argv[1])
print(model.push_to_hub("somebody/model", about={"words": ["yes"]}, token="hf_secret"))
"""
DOWNLOAD = """
import sys
from delayssm import Pretrained
from delayssm.storage.pretrained import read_about
model = Pretrained.from_pretrained(sys.argv[1], token="hf_secret")
model.save_pretrained(sys.argv[2], about=read_about(sys.argv[1], token="hf_secret"))
"""


def _run(script: str, address: str, home: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    environment["HF_HUB_DISABLE_XET"] = "1"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_a_model_goes_to_the_hub_and_comes_back(tmp_path: Path) -> None:
    model = TokenModel(9, Stack([Block(DS4D(8, 4, 30))]))
    model.save_pretrained(tmp_path / "model")
    with hub.running() as server:
        done = _run(UPLOAD, server.address, tmp_path / "home", tmp_path / "model")
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{server.address}/somebody/model\n"
        assert server.files["somebody/model"].keys() == {WEIGHTS, CONFIG, CARD}
        done = _run(DOWNLOAD, server.address, tmp_path / "home", "somebody/model", tmp_path / "again")
        assert done.returncode == 0, done.stderr
    again = TokenModel.from_pretrained(tmp_path / "again")
    assert again.config == model.config
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    assert '"yes"' in (tmp_path / "again" / CONFIG).read_text()


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (None, "nobody/model is no directory here, and could not be downloaded from the Hub: "),
        ({}, "nobody/model is no directory here, and could not be downloaded from the Hub: "),
        ({"pytorch_model.bin": b"\x80\x04"}, "could not be downloaded from the Hub: "),
        ({WEIGHTS: b"\x80\x04"}, "is damaged, or not a file of the format 'delayssm model 1'"),
    ],
    ids=["no repository", "an empty one", "a pickle", "damaged"],
)
def test_what_is_not_there_or_not_ours(files: dict[str, bytes] | None, message: str, tmp_path: Path) -> None:
    with hub.running() as server:
        if files is not None:
            server.files["nobody/model"] = files
        done = _run(DOWNLOAD, server.address, tmp_path / "home", "nobody/model", tmp_path / "again")
    assert done.returncode == 1
    assert message in done.stderr
    assert not (tmp_path / "again").exists()


@pytest.mark.slow  # the client tries again and again
def test_a_hub_that_does_not_answer(tmp_path: Path) -> None:
    with hub.running() as server:
        address = server.address  # nobody listens there any more
    done = _run(DOWNLOAD, address, tmp_path / "home", "somebody/model", tmp_path / "again")
    assert done.returncode == 1
    assert "somebody/model is no directory here, and could not be downloaded from the Hub" in done.stderr
