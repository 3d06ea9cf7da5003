"""Configurations and weights in directories: everything comes back, and nothing else is accepted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from delayssm import DS4D, Block, Stack, TokenModel
from delayssm.hf import DS4DConfig, DS4DForCausalLM
from tests.delayssm.hf.models import V, every_model, make, padded

PROMPTS = [torch.tensor([3, 1, 4, 1, 5]), torch.tensor([9, 2])]
SIZES = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 2}
NAME = "model.backbone.blocks.0.layer.ssm.C"


def _same(model: torch.nn.Module, other: torch.nn.Module) -> bool:
    mine, theirs = model.state_dict(), other.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


@every_model
def test_a_saved_model_is_the_same(kind: str, tmp_path: Path) -> None:
    model = make(kind)
    model.save_pretrained(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "generation_config.json", "model.safetensors"]
    loaded, found = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(loaded, DS4DForCausalLM)
    assert not loaded.training
    assert not any(found.values())
    assert _same(model, loaded)
    assert all(p.requires_grad for p in loaded.parameters())
    assert loaded.model.config == model.model.config
    tokens = loaded.generate(**padded(PROMPTS, "left"), max_new_tokens=30, do_sample=False)
    assert tokens[:, 5:].tolist() == model.model.generate_batch(PROMPTS, 30, temperature=0)


def test_another_process_generates_the_same(tmp_path: Path) -> None:
    model = make()
    model.save_pretrained(tmp_path)
    code = """
import sys
sys.modules["delayssm_lab"] = None
import delayssm.hf, torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
print(model.generate(torch.tensor([[3, 1, 4]]), max_new_tokens=20, do_sample=False)[0, 3:].tolist())
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == list(model.model.generate([3, 1, 4], 20, temperature=0)), done.stderr


def test_the_library_and_transformers_exchange_models(tmp_path: Path) -> None:
    mine = TokenModel(V, Stack([Block(DS4D(8, 4, max_delay=30))]))
    before = torch.get_rng_state()
    model = DS4DForCausalLM.from_model(mine)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.model is mine
    assert model.training
    assert not any(p.is_meta for p in model.parameters())
    model.save_pretrained(tmp_path / "theirs")
    AutoModelForCausalLM.from_pretrained(tmp_path / "theirs").model.save_pretrained(tmp_path / "mine")
    assert _same(TokenModel.from_pretrained(tmp_path / "mine"), mine)
    with pytest.raises(ValueError, match=r"has the format .* but 'delayssm model 1' is expected"):
        TokenModel.from_pretrained(tmp_path / "theirs")


@every_model
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformers_reads_what_the_library_wrote(kind: str, dtype: torch.dtype, tmp_path: Path) -> None:
    mine = make(kind).model.to(dtype)
    mine.save_pretrained(tmp_path, about={"language": "none"})
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert isinstance(loaded, DS4DForCausalLM)
    assert _same(loaded.model, mine)
    assert _same(TokenModel.from_pretrained(tmp_path), mine)
    tokens = loaded.generate(**padded(PROMPTS, "left"), max_new_tokens=30, do_sample=False)
    assert tokens[:, 5:].tolist() == mine.generate_batch(PROMPTS, 30, temperature=0)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**content, "format": "delayssm model 0"}))
    with pytest.raises(ValueError, match="has no option about, backbone, format, kind"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_weights_are_cast_and_identities_are_not(dtype: torch.dtype, tmp_path: Path) -> None:
    model = make("mixed")
    model.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=dtype)
    expected = make("mixed").model.to(dtype)
    for name, t in loaded.state_dict().items():
        if t.is_floating_point():
            assert t.dtype == (torch.promote_types(dtype, torch.float32) if ".ssm." in name else dtype), name
    assert _same(loaded.model, expected)
    x = torch.randint(0, V, (2, 20))
    assert torch.equal(loaded(x).logits, expected(x))
    tokens = loaded.generate(x, max_new_tokens=10, do_sample=False)
    assert tokens[:, 20:].tolist() == expected.generate_batch(list(x), 10, temperature=0)
    loaded.save_pretrained(tmp_path / "again")
    assert _same(AutoModelForCausalLM.from_pretrained(tmp_path / "again"), loaded)


@pytest.mark.parametrize("settings", [{"device_map": "cpu"}, {"device_map": "auto"}, {"attn_implementation": "eager"}])
def test_settings_of_transformers(settings: dict, tmp_path: Path) -> None:
    model = make("mixed")
    model.save_pretrained(tmp_path, max_shard_size="1KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, **settings)
    assert _same(loaded, model)
    tokens = loaded.generate(PROMPTS[0][None], max_new_tokens=10, do_sample=False)
    assert tokens[0, 5:].tolist() == list(model.model.generate(PROMPTS[0], 10, temperature=0))


def test_initial_values_are_those_of_the_library() -> None:
    config = DS4DConfig(**SIZES, d_state=4, max_delay=30)
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config)
    torch.manual_seed(3)
    assert _same(model.model, TokenModel(20, Stack(Block(DS4D(8, 4, max_delay=30)) for _ in range(2))))


def _damage(directory: Path, what: str) -> None:
    """Change a saved model in a way that must be noticed."""
    weights, config = directory / "model.safetensors", directory / "config.json"
    tensors, content = load_file(weights), json.loads(config.read_text())
    layer = content["model"]["backbone"]["blocks"][0]["layer"]
    if what == "missing":
        del tensors[NAME]
    elif what == "identity missing":
        del tensors["model.backbone.blocks.0.options"]
    elif what == "foreign":
        tensors["model.other"] = torch.zeros(3)
    elif what == "shape":
        tensors[NAME] = tensors[NAME][:, :4].contiguous()
    elif what == "longer delays":
        layer["max_delay"] = 60
    elif what == "other norm":
        content["model"]["backbone"]["blocks"][1]["prenorm"] = False
    elif what == "wider":
        content["model"]["vocab_size"] = 21
    elif what == "option":
        layer["max_dely"] = 60
    elif what == "other option":
        content["hidden_sizes"] = 3
    elif what == "pickle":
        torch.save(tensors, directory / "pytorch_model.bin")
        weights.unlink()
    if weights.exists():
        save_file(tensors, weights, {"format": "pt"})
    config.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("missing", ValueError, f"missing keys .*{NAME}"),
        ("identity missing", ValueError, r"missing keys .*blocks\.0\.options"),
        ("foreign", ValueError, r"unexpected keys .*model\.other"),
        ("shape", RuntimeError, "(?i)mismatch"),
        ("wider", RuntimeError, "(?i)mismatch"),
        ("longer delays", RuntimeError, "max_delay is 30 there and 60 here"),
        ("other norm", RuntimeError, "prenorm is 1 there and 0 here"),
        ("option", ValueError, "DS4D has no option max_dely"),
        ("other option", ValueError, "leave out hidden_sizes"),
        ("pickle", OSError, "safetensors"),
    ],
)
def test_damage_is_noticed(what: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    _damage(tmp_path, what)
    with pytest.raises(error, match=message):
        AutoModelForCausalLM.from_pretrained(tmp_path)


def test_nothing_is_made_up_on_request(tmp_path: Path) -> None:
    make().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="safetensors files only"):
        AutoModelForCausalLM.from_pretrained(tmp_path, use_safetensors=False)
    with pytest.raises(TypeError, match="max_delay"):
        AutoModelForCausalLM.from_pretrained(tmp_path, max_delay=60)
    with pytest.raises(AttributeError, match="hidden_size"):
        AutoModelForCausalLM.from_pretrained(tmp_path, hidden_size=60)
    _damage(tmp_path, "shape")
    with pytest.raises(ValueError, match=f"mismatched keys .*{NAME}"):
        AutoModelForCausalLM.from_pretrained(tmp_path, ignore_mismatched_sizes=True)


def test_weights_of_another_configuration_are_not_loaded_into_a_model() -> None:
    model = DS4DForCausalLM(DS4DConfig(**SIZES, d_state=8, max_delay=31))
    with pytest.raises(RuntimeError, match="max_delay is 30 there and 31 here"):
        model.load_state_dict(make().state_dict(), strict=False)


def test_configurations(tmp_path: Path) -> None:
    config = DS4DConfig(
        **SIZES, d_state=4, max_delay=30, dropout=0.1, prenorm=False, pad_token_id=1, eos_token_id=[2, 3]
    )
    assert (config.vocab_size, config.hidden_size, config.num_hidden_layers) == (20, 8, 2)
    assert (
        config.model
        == TokenModel(
            20, Stack(Block(DS4D(8, 4, max_delay=30, dropout=0.1), prenorm=False) for _ in range(2))
        ).config.to_dict()
    )
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(loaded, DS4DConfig)
    assert (loaded.model, loaded.pad_token_id, loaded.bos_token_id, loaded.eos_token_id) == (
        config.model,
        1,
        None,
        [2, 3],
    )
    assert DS4DConfig.from_dict(config.to_dict()).to_dict() == config.to_dict()
    assert AutoConfig.for_model("ds4d", **SIZES).model == DS4DConfig(**SIZES).model
    assert DS4DConfig(TokenModel(9, Stack([DS4D(6)])).config).hidden_size == 6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs vocab_size, hidden_size, num_hidden_layers, or the configuration"),
        ({"vocab_size": 20}, "needs hidden_size, num_hidden_layers"),
        ({**SIZES, "max_dely": 3}, "has no option max_dely; its options are vocab_size, .*max_delay"),
        ({**SIZES, "tie_word_embeddings": True}, "has no option tie_word_embeddings"),
        ({**SIZES, "d_model": 3}, "has no option d_model"),
        ({**SIZES, "num_hidden_layers": 0}, "num_hidden_layers must be a whole number of at least 1, not 0"),
        ({**SIZES, "max_delay": 2}, "max_delay must be at least 3"),
        ({"model": {"kind": "Stack", "blocks": []}}, "no configuration is called 'Stack' here; there are TokenModel"),
        ({"model": make().config.model, "hidden_size": 8, "d_state": 3}, "leave out hidden_size, d_state"),
    ],
)
def test_wrong_configurations(arguments: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DS4DConfig(**arguments)


def test_more_tokens(tmp_path: Path) -> None:
    model, x = make(), torch.randint(0, V, (2, 9))
    before = model(x).logits
    model.resize_token_embeddings(V + 3)
    assert model.config.vocab_size == model.model.vocab_size == V + 3
    assert torch.equal(model(x).logits[..., :V], before)
    assert model(torch.full((1, 2), V + 2)).logits.shape == (1, 2, V + 3)
    tokens = model.generate(x, max_new_tokens=5, do_sample=False)
    assert tokens[:, 9:].tolist() == model.model.generate_batch(list(x), 5, temperature=0)
    model.save_pretrained(tmp_path)
    assert _same(AutoModelForCausalLM.from_pretrained(tmp_path), model)
    with pytest.raises(TypeError, match="the embedding must be a module of type Tokens, not Embedding"):
        model.set_input_embeddings(torch.nn.Embedding(V, 8))


def test_the_extra_is_named() -> None:
    code = "import sys; sys.modules['transformers'] = None; import delayssm.hf"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install '.[hf]' in a clone" in done.stderr
