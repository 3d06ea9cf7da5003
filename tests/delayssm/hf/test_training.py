"""Training by the `Trainer` of transformers, and gradient checkpointing."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

from delayssm import DS4D, Block, Stack, TokenModel, param_groups
from delayssm.hf import DS4DConfig, DS4DForCausalLM
from tests.delayssm.hf.models import make, padded

pytestmark = pytest.mark.usefixtures("one_thread")
TEXT = torch.arange(6).repeat(200)
STEPS = 6


def _model(**options: object) -> DS4DForCausalLM:
    torch.manual_seed(0)
    config = DS4DConfig(vocab_size=8, hidden_size=8, num_hidden_layers=3, d_state=4, max_delay=20, **options)
    return DS4DForCausalLM(config)


def _rows() -> list[Tensor]:
    return [TEXT[start : start + 8 + start % 5] for start in range(40)]


def _collate(rows: list[Tensor]) -> dict[str, Tensor]:
    batch = padded(rows, "right")
    return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


def _trainer(model: DS4DForCausalLM, directory: Path, **settings: object) -> Trainer:
    common = {
        "use_cpu": True, "per_device_train_batch_size": 4, "max_steps": STEPS, "save_strategy": "no", "seed": 3,
        "report_to": "none", "dataloader_pin_memory": False, "disable_tqdm": True, "logging_steps": 1,
    }  # fmt: skip
    arguments = TrainingArguments(str(directory), **{**common, **settings})
    return Trainer(
        model, arguments, train_dataset=_rows(), eval_dataset=_rows()[:8], data_collator=_collate,
        optimizers=(torch.optim.AdamW(param_groups(model, lr=1e-2)), None),
    )  # fmt: skip


def _losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("options", [{}, {"dropout": 0.2}], ids=["plain", "dropout"])
def test_a_resumed_training_is_the_uninterrupted_one(options: dict, tmp_path: Path) -> None:
    whole = _trainer(_model(**options), tmp_path / "whole", save_strategy="steps", save_steps=3)
    whole.train()
    checkpoint = tmp_path / "whole" / "checkpoint-3"
    assert not [path.name for path in checkpoint.iterdir() if path.name.startswith("pytorch_model")]
    resumed = _trainer(_model(**options), tmp_path / "resumed")
    with torch.no_grad():
        for parameter in resumed.model.parameters():
            parameter.zero_()  # everything comes from the checkpoint
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert resumed.state.global_step == STEPS
    assert _losses(resumed) == _losses(whole)
    for (name, a), b in zip(whole.model.state_dict().items(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_a_text_is_learnt_and_continued(tmp_path: Path) -> None:
    trainer = _trainer(_model(), tmp_path, max_steps=120)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    assert before > 0.8 * math.log(8)
    assert after < 0.2
    trainer.save_model(str(tmp_path / "saved"))
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "saved")
    prompts = padded([TEXT[2:9], TEXT[4:8]], "left")
    tokens = model.generate(**prompts, max_new_tokens=6, do_sample=False)[:, 7:]
    assert tokens.tolist() == [TEXT[9:15].tolist(), TEXT[8:14].tolist()]


def test_accumulated_gradients_are_those_of_one_batch(tmp_path: Path) -> None:
    """The loss is divided by the number of labels of all batches of a step, which the `Trainer` counts."""
    weights = []
    for size, batches in ((8, 1), (2, 4)):
        model = _model()
        _trainer(
            model, tmp_path, per_device_train_batch_size=size, gradient_accumulation_steps=batches, max_steps=1
        ).train()  # fmt: skip
        weights.append(model.model.head.weight.detach())
    assert torch.allclose(*weights, rtol=0, atol=1e-5)


def _gradients(model: DS4DForCausalLM, side: str) -> dict[str, Tensor]:
    batch = padded(_rows()[:5], side)
    torch.manual_seed(5)
    model.zero_grad()
    model(**batch, labels=batch["input_ids"]).loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("settings", [{}, {"every_n_layers": 2}], ids=["every layer", "every second layer"])
def test_checkpointing_gives_the_same_gradients(side: str, settings: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    model = _model(dropout=0.3)
    expected = _gradients(model, side)
    calls = _count_calls(model, monkeypatch)
    model.activation_checkpointing_enable(**settings)
    assert model.is_activation_checkpointing
    found = _gradients(model, side)
    assert calls == ([2, 1, 2] if settings else [2, 2, 2])  # a checkpointed block runs again in the backward pass
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    model.activation_checkpointing_disable()
    again = _gradients(model, side)
    assert calls == ([3, 2, 3] if settings else [3, 3, 3])
    assert all(torch.equal(again[name], expected[name]) for name in expected)
    model.activation_checkpointing_enable(**settings)
    model.eval()
    assert model(torch.tensor([[1, 2, 3]])).logits.isfinite().all()
    assert model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=3).shape == (1, 6)


def _count_calls(model: DS4DForCausalLM, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that counts the passes through each block from now on."""
    blocks = list(model.model.backbone.blocks)
    calls, forward = [0] * len(blocks), Block.forward

    def counted(self: Block, *arguments: object) -> Tensor:
        calls[next(i for i, block in enumerate(blocks) if block is self)] += 1
        return forward(self, *arguments)

    monkeypatch.setattr(Block, "forward", counted)
    return calls


def test_checkpointing_by_the_trainer(tmp_path: Path) -> None:
    losses = []
    for settings in ({}, {"activation_checkpointing": True}):
        trainer = _trainer(_model(dropout=0.1), tmp_path, max_steps=3, **settings)
        trainer.train()
        losses.append(_losses(trainer))
    assert losses[0] == losses[1]


def test_mixed_precision(tmp_path: Path) -> None:
    trainer = _trainer(_model(), tmp_path, bf16=True)
    trainer.train()
    losses = _losses(trainer)
    assert losses[-1] < losses[0]
    assert {p.dtype for p in trainer.model.parameters()} == {torch.float32}


def test_checkpointing_would_count_batches_twice() -> None:
    with pytest.raises(ValueError, match="batch norm would count every batch twice"):
        make("mixed").activation_checkpointing_enable()


def test_padding_does_not_change_gradients() -> None:
    model = _model()
    left, right = _gradients(model, "left"), _gradients(model, "right")
    for name, gradient in left.items():
        assert (gradient - right[name]).norm() <= 1e-5 * right[name].norm(), name


def test_learning_rates_of_the_library() -> None:
    """Its groups are found through the model of transformers."""
    mine = TokenModel(8, Stack([Block(DS4D(8, 4, max_delay=20))]))
    shown = [
        [
            (group["name"], group["lr"], group["weight_decay"], len(group["params"]))
            for group in param_groups(m, lr=1e-2)
        ]
        for m in (mine, DS4DForCausalLM.from_model(mine))
    ]
    assert shown[0] == shown[1]
