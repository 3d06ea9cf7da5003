"""The parts of estimators: quantiles, what is held out, early stopping, files."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from delayssm import SeriesModel
from delayssm.estimators import DelayClassifier, DelayForecaster, quantiles
from delayssm.estimators.outlook import Outlook, Piece, split_ends, split_series
from delayssm.estimators.series import Scaling
from delayssm.estimators.training import Training

pytestmark = pytest.mark.usefixtures("one_thread")

TINY: dict[str, Any] = {"d_model": 8, "d_state": 4, "depth": 1, "max_epochs": 2, "random_state": 0}
LEVELS = (0.05, 0.1, 0.5, 0.8, 0.9)


def test_quantiles_never_cross() -> None:
    raw = 30 * torch.randn(5, 7, 5, 3, 2)
    levels = quantiles.ordered(raw, LEVELS)
    assert torch.equal(levels[..., 2, :, :], raw[..., 2, :, :])  # the median is free
    assert bool((levels.diff(dim=-3) >= 0).all())
    assert torch.equal(quantiles.ordered(raw, ()), raw)


def test_pinball_loss_by_hand() -> None:
    answers, y = torch.tensor([1.0, 4.0])[:, None, None], torch.tensor([[3.0]])
    # 0.1 (3 - 1) = 0.2 for the level 0.1, and (0.9 - 1) (3 - 4) = 0.1 for the level 0.9
    assert math.isclose(float(quantiles.error(answers, y, (0.1, 0.9))), 0.15, rel_tol=1e-6)
    assert math.isclose(float(quantiles.error(answers[:1], y, ())), 4.0, rel_tol=1e-6)


def test_pinball_loss_finds_quantiles() -> None:
    """The minimum over a constant is the quantile of the sample."""
    y = torch.randn(2001)
    grid = torch.linspace(-3, 3, 1201)
    for level in (0.1, 0.5, 0.9):
        losses = quantiles.error(grid[:, None, None, None, None], y[:, None, None], (level,)).mean(1)
        assert abs(float(grid[losses.argmin()]) - float(y.quantile(level))) < 0.02


def _piece(length: int, furthest: int) -> Piece:
    return Piece(
        torch.arange(length - furthest).float()[:, None], torch.arange(length).float()[:, None], 0, length - furthest
    )


def test_held_out_ends_are_not_seen_in_training() -> None:
    furthest = 3
    pieces = [_piece(length, furthest) for length in (43, 23, 9, 7)]
    trained, held_out = split_ends(pieces, 0.1, furthest)
    assert [(piece.start, piece.stop) for piece in trained] == [(0, 34), (0, 16), (0, 3), (0, 1)]
    assert [(piece.start, piece.stop) for piece in held_out] == [(36, 40), (18, 20), (5, 6), (3, 4)]
    for before, after in zip(trained, held_out, strict=True):
        last_seen = before.stop - 1 + furthest
        assert last_seen < after.start + 1  # the first value that is forecast from a held-out time
    whole, none = split_ends([_piece(6, furthest), *pieces], 0.1, furthest)
    assert (len(whole), len(none), whole[0].stop) == (5, 4, 3)  # too short to hold anything out
    assert split_ends(pieces, 0.0, furthest) == (pieces, [])
    assert split_series("abcd", [3, 1]) == (["a", "c"], ["b", "d"])


class _Repeat(nn.Module):
    """A model that answers what it hears."""

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        return x.repeat(1, 1, 2)


def test_losses_count_the_times_in_question() -> None:
    """A model that repeats the last of 0, 1, 2, ... is wrong by 1 and by 3 for steps 1 and 3: (1 + 9) / 2 = 5."""
    outlook = Outlook((1, 3), (), 1)
    pieces = [_piece(20, 3), _piece(11, 3)._replace(start=6)]
    total, count = outlook.loss(_Repeat(), pieces)  # type: ignore[arg-type]
    assert (float(total), int(count)) == (5.0 * (17 + 2), 17 + 2)


def test_scaling_leaves_constants_alone() -> None:
    scaling = Scaling.of([np.array([[1.0, 7.0, 0.1], [3.0, 7.0, 0.1]]), np.array([[5.0, 7.0, 0.1]])])
    assert scaling.scale.tolist() == [pytest.approx(math.sqrt(8 / 3)), 1.0, 1.0]
    assert np.allclose(scaling.undo(scaling.apply(np.ones((4, 3)))), 1)


def test_the_best_epoch_is_kept_and_patience_ends() -> None:
    """A model whose held-out loss falls and then rises: one number that training moves past its optimum."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)

    def loss(model: nn.Linear, batch: list[float]) -> tuple[Tensor, Tensor]:
        return sum((model.weight - target).square().sum() for target in batch), torch.tensor(len(batch))

    training = Training(0.05, 0.0, 2, 100, 5, verbose=False)
    history = training.train(model, loss, [2.0], [0.4])
    losses = [epoch["held out"] for epoch in history]
    best = losses.index(min(losses))
    assert 0 < best < 99
    assert len(history) == best + 1 + 5
    assert training.evaluate(model, loss, [0.4]) == min(losses)
    assert len(Training(0.05, 0.0, 2, 20, 5, verbose=False).train(model, loss, [2.0], [])) == 20


def test_divergence_is_an_error() -> None:
    def loss(model: nn.Linear, batch: list[float]) -> tuple[Tensor, Tensor]:
        return model.weight.sum() * math.inf, torch.tensor(1)

    with pytest.raises(FloatingPointError, match=r"diverged in epoch 1: use a learning_rate below 0.05"):
        Training(0.05, 0.0, 1, 3, None, verbose=False).train(nn.Linear(1, 1), loss, [1.0], [])


def test_a_fit_that_fails_leaves_no_model_behind() -> None:
    series = np.sin(np.arange(30.0))
    forecaster = DelayForecaster(**TINY).fit(series)
    with pytest.raises(FloatingPointError, match="diverged"):
        forecaster.set_params(learning_rate=1e30, max_epochs=9).fit(np.stack([series, series], axis=1))
    with pytest.raises(NotFittedError):
        forecaster.predict(series)


def test_progress_is_printed_if_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    series = np.sin(np.arange(30.0))
    DelayForecaster(**TINY).fit(series)
    assert capsys.readouterr().out == ""
    DelayForecaster(**TINY, verbose=True, validation_fraction=0.2).fit(series)
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["epoch", "1/2"], ["epoch", "2/2"]]


def test_default_delays_leave_no_gaps() -> None:
    def longest(length: int, **options: Any) -> int:
        series = np.sin(np.arange(float(length)))
        model = DelayForecaster(**{**TINY, **options}).fit(series).model_
        assert isinstance(model, SeriesModel)
        return int(model.backbone.blocks[0].layer.ssm.max_delay)  # type: ignore[union-attr]

    assert longest(200) == 80  # 10 d_model
    assert longest(50) == 50
    assert longest(50, max_delay=17) == 17


def test_saved_estimators_are_the_same_in_a_fresh_process(tmp_path: Path) -> None:
    """They work without the laboratory, and their files hold no pickle."""
    series = np.random.default_rng(0).normal(size=(2, 40, 2))
    forecaster = DelayForecaster([2, 5], quantiles=(0.1, 0.5, 0.9), **TINY)
    forecaster.fit(series, past_covariates=series[:, :, :1], future_covariates=series)
    forecaster.save(tmp_path / "forecaster", card="# Mine")
    forecaster.save(tmp_path / "forecaster")
    assert (tmp_path / "forecaster" / "README.md").read_text() == "# Mine"
    assert sorted(path.name for path in (tmp_path / "forecaster").iterdir()) == [
        "README.md", "config.json", "model.safetensors",
    ]  # fmt: skip
    labels = np.array(["left", "right"] * 5)
    classifier = DelayClassifier(**TINY).fit(np.tile(series[0, :10, 0], (10, 1)), labels)
    classifier.save(tmp_path / "classifier")
    assert "DelayClassifier.load(" in (tmp_path / "classifier" / "README.md").read_text()
    code = """
import sys
sys.modules["delayssm_lab"] = None
import json, numpy as np
from delayssm.estimators import DelayClassifier, DelayForecaster
series = np.random.default_rng(0).normal(size=(2, 40, 2))
forecaster = DelayForecaster.load("forecaster")
covariates = dict(past_covariates=series[:, :35, :1], future_covariates=series)
classifier = DelayClassifier.load("classifier")
print(json.dumps([
    forecaster.predict_quantiles(series[:, :35], **covariates).tolist(),
    classifier.predict_proba(series[0, :10].T).tolist(),
    classifier.predict(series[0, :10].T).tolist(),
]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    forecasts, probabilities, classes = json.loads(done.stdout)
    covariates = {"past_covariates": series[:, :35, :1], "future_covariates": series}
    assert np.array_equal(forecasts, forecaster.predict_quantiles(series[:, :35], **covariates))
    assert np.array_equal(probabilities, classifier.predict_proba(series[0, :10].T))
    assert set(classes) <= {"left", "right"}


def test_loading_the_wrong_thing_is_an_error(tmp_path: Path) -> None:
    series = np.sin(np.arange(30.0))
    forecaster = DelayForecaster(range(1, 4), **{**TINY, "random_state": np.random.RandomState(0)}).fit(series)
    forecaster.save(tmp_path / "forecaster")
    again = DelayForecaster.load(tmp_path / "forecaster")
    assert again.get_params()["horizon"] == [1, 2, 3]
    assert again.random_state is None
    assert np.array_equal(again.predict(series), forecaster.predict(series))
    assert np.array_equal(clone(again).fit(series).predict(series).shape, (3,))
    with pytest.raises(ValueError, match="forecaster holds DelayForecaster, not a DelayClassifier"):
        DelayClassifier.load(tmp_path / "forecaster")
    forecaster.model_.save_pretrained(tmp_path / "model")
    with pytest.raises(ValueError, match="model holds a model, not a DelayForecaster"):
        DelayForecaster.load(tmp_path / "model")
    about = {"estimator": "DelayForecaster", "parameters": {"wings": 2}, "fitted": {}}
    forecaster.model_.save_pretrained(tmp_path / "model", about=about)
    with pytest.raises(ValueError, match=r"model was saved by another version of delayssm: .*wings"):
        DelayForecaster.load(tmp_path / "model")
    with pytest.raises(NotFittedError):
        DelayForecaster().save(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_without_scikit_learn_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['sklearn'] = None; import delayssm.estimators"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith("pip install '.[estimators]' in a clone")


def test_the_documentation_has_all_arguments() -> None:
    for kind in (DelayForecaster, DelayClassifier):
        missing = [name for name in kind().get_params() if f"        {name}: " not in (kind.__doc__ or "")]
        assert missing == []
