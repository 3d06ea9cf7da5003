"""Models in directories: they come back as they were, and nothing else is taken for one."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from delayssm import DS4D, Block, PairModel, Pretrained, Stack, TokenModel
from delayssm.storage import tensors
from delayssm.storage.model_files import FORMAT
from delayssm.storage.pretrained import read_about
from tests.contracts.modules import MODELS, MODULES

SAVED = {
    name: build for name, build in {**MODELS, "Stack": MODULES["Stack"]}.items() if name not in ("Tokens", "Values")
}


def _model(width: int = 8, delays: int = 30) -> TokenModel:
    return TokenModel(9, Stack([Block(DS4D(width, 4, delays))]))


@pytest.mark.parametrize("build", SAVED.values(), ids=SAVED.keys())
def test_what_is_saved_comes_back(build: Callable[[], Pretrained], tmp_path: Path) -> None:
    model = build()
    model.save_pretrained(tmp_path / "model")
    for kind in (type(model), Pretrained):
        again = kind.from_pretrained(tmp_path / "model")
        assert type(again) is type(model)
        assert again.config == model.config
        assert not again.training
        for name, value in model.state_dict().items():
            assert torch.equal(value, again.state_dict()[name])
    assert {path.name for path in (tmp_path / "model").iterdir()} == {"config.json", "model.safetensors", "README.md"}
    assert type(model).__name__ in (tmp_path / "model" / "README.md").read_text()


def test_precision_is_kept(tmp_path: Path) -> None:
    _model().double().save_pretrained(tmp_path)
    assert TokenModel.from_pretrained(str(tmp_path)).head.weight.dtype == torch.float64


def test_cards_and_facts(tmp_path: Path) -> None:
    model = _model()
    model.save_pretrained(tmp_path, card="# Mine", about={"words": ["yes", "no"]})
    assert read_about(tmp_path) == {"words": ["yes", "no"]}
    model.save_pretrained(tmp_path)  # a card that is there stays
    assert (tmp_path / "README.md").read_text() == "# Mine"
    assert read_about(tmp_path) == {}


def test_another_model_takes_its_place(tmp_path: Path) -> None:
    _model(8).save_pretrained(tmp_path)
    _model(4).save_pretrained(tmp_path)
    assert TokenModel.from_pretrained(tmp_path).d_model == 4


def test_facts_that_are_not_json_are_named(tmp_path: Path) -> None:
    model = Stack([Block(DS4D(4, 8, 20))])
    with pytest.raises(TypeError, match=r"^about\['classes'\] cannot be written as JSON: .* Tensor"):
        model.save_pretrained(tmp_path / "model", about={"made for": "tests", "classes": torch.ones(2)})
    assert not (tmp_path / "model").exists()


def test_what_is_not_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no directory .* is called owner/name"):
        TokenModel.from_pretrained(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"does not hold a model: it has no model\.safetensors"):
        TokenModel.from_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"a": 1}))  # nobody opens it
    with pytest.raises(FileNotFoundError, match="does not hold a model"):
        TokenModel.from_pretrained(tmp_path)
    with pytest.raises(NotADirectoryError, match="is a file; name the directory that save_pretrained wrote"):
        TokenModel.from_pretrained(tmp_path / "pytorch_model.bin")
    with pytest.raises(NotADirectoryError, match="is a file; choose another directory"):
        _model().save_pretrained(tmp_path / "pytorch_model.bin")
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(3)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"has the format .* but 'delayssm model 1' is expected"):
        TokenModel.from_pretrained(tmp_path)
    _model().save_pretrained(tmp_path)
    with pytest.raises(TypeError, match="holds a TokenModel, not a PairModel"):
        PairModel.from_pretrained(tmp_path)
    with pytest.raises(TypeError, match="Layerless has no configuration"):
        type("Layerless", (Pretrained,), {})().save_pretrained(tmp_path / "layerless")
    assert not (tmp_path / "layerless").exists()


def test_damage(tmp_path: Path) -> None:
    _model().save_pretrained(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    content, shown = weights.read_bytes(), config.read_text()
    for damaged in (content[:-1], content[:-1] + b"\xff", content[: len(content) // 2], b""):
        weights.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged"):
            TokenModel.from_pretrained(tmp_path)
    weights.write_bytes(content)
    config.write_text(shown.replace('"max_delay": 30', '"max_delay": 31'))
    with pytest.raises(ValueError, match=r"max_delay is 31 there and 30 here, in model\.safetensors; delete it"):
        TokenModel.from_pretrained(tmp_path)
    config.write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is damaged: .* delete it"):
        TokenModel.from_pretrained(tmp_path)
    config.unlink()
    TokenModel.from_pretrained(tmp_path)


def _without_weights(saved: dict[str, Any], about: dict[str, str]) -> None:
    saved.pop("head.weight")


def _of_another_size(saved: dict[str, Any], about: dict[str, str]) -> None:
    saved["head.weight"] = torch.zeros(3, 3)


def _without_config(saved: dict[str, Any], about: dict[str, str]) -> None:
    about.clear()


def _of_an_unknown_kind(saved: dict[str, Any], about: dict[str, str]) -> None:
    about["config"] = about["config"].replace("TokenModel", "OracleModel")


def _with_a_list(saved: dict[str, Any], about: dict[str, str]) -> None:
    about["config"] = "[]"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without_weights, "does not have the weights that its configuration asks for"),
        (_of_another_size, "does not have the weights that its configuration asks for"),
        (_without_config, "is damaged"),
        (_of_an_unknown_kind, "no configuration is called 'OracleModel' here"),
        (_with_a_list, "its configuration is not an object"),
    ],
)
def test_a_crafted_file(change: Callable[..., None], message: str, tmp_path: Path) -> None:
    _model().save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()
    saved, about = tensors.read(tmp_path / "model.safetensors", FORMAT)
    about = {"config": about["config"]}
    change(saved, about)
    tensors.write(tmp_path / "model.safetensors", FORMAT, saved, about)
    with pytest.raises(ValueError, match=message):
        Pretrained.from_pretrained(tmp_path)


SAVING = """
import sys, torch
from delayssm import DS4D, Block, Stack, TokenModel
torch.set_num_threads(1)
for seed in range(10**6):
    torch.manual_seed(seed)
    TokenModel(9, Stack([Block(DS4D(4 * (1 + seed % 2), 4, 30))])).save_pretrained(sys.argv[1])
    print(seed, flush=True)
"""


def test_kills_while_saving(tmp_path: Path) -> None:
    """Whenever a process is killed, the directory has one whole model."""
    random.seed(0)
    _model().save_pretrained(tmp_path)
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", SAVING, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        TokenModel.from_pretrained(tmp_path)
    _model().save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"config.json", "model.safetensors", "README.md"}


def test_without_the_laboratory(tmp_path: Path) -> None:
    """A fresh process without the laboratory generates the same tokens."""
    model = _model().eval()
    model.save_pretrained(tmp_path)
    code = f"""
import sys
for name in ("delayssm_lab", "accelerate", "huggingface_hub", "transformers", "tyro"):
    sys.modules[name] = None
from delayssm import TokenModel
print(list(TokenModel.from_pretrained({str(tmp_path)!r}).generate([1, 2], 30, seed=0)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True)
    assert json.loads(done.stdout) == list(model.generate([1, 2], 30, seed=0))
