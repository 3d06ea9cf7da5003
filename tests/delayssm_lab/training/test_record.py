"""Records and fingerprints: what is left of a run, and whether it is one of this code."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from delayssm.system import parameters
from delayssm_lab.display import Silent
from delayssm_lab.tasks.task import Split
from delayssm_lab.training import fingerprint, record, store
from delayssm_lab.training import trainer as training
from delayssm_lab.training.evaluate import best_model
from delayssm_lab.training.run import load
from delayssm_lab.training.store import Store
from tests.support.runs import LSTM, create, read_metrics, read_summary, tiny

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a finished run."""
    path = create(tmp_path_factory.mktemp("run") / "run", tiny())
    training.train(path, Silent())
    return path


def test_a_record_is_read_as_it_was_written(directory: Path, tmp_path: Path) -> None:
    kept = Store(tmp_path / "runs")
    assert kept.find(tiny()) is None
    kept.add(directory)
    found = kept.find(tiny())
    assert found == record.of_directory(directory)
    assert found is not None
    assert found.metrics == read_metrics(directory)
    assert found.summary == read_summary(directory)
    run, _ = load(directory)
    model = best_model(directory, run)
    assert found.answers == run.task.answers(model, run.task.batch(0, Split.VALIDATION, [0]))[0].tolist()
    assert [len(layer[0]) for layer in found.delays] == [8, 8]
    assert found.delays[0][0] != found.delays[0][1]  # they have moved
    assert kept.find(tiny(lr=2e-3)) is None
    assert not list(kept.directory.glob("*.safetensors"))


def test_weights_are_kept_where_they_are_small(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Store(tmp_path / "runs")
    kept.add(directory, weights=True)
    expected = best_model(directory, load(directory)[0])
    model = kept.model(tiny())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), expected.parameters(), strict=True))
    monkeypatch.setattr(store, "LARGEST_WEIGHTS", 10)
    kept = Store(tmp_path / "others")
    kept.add(directory, weights=True)
    assert kept.find(tiny()) is not None
    assert not list(kept.directory.glob("*.safetensors"))


def test_an_unfinished_run_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a finished run"):
        Store(tmp_path / "runs").add(create(tmp_path / "run", tiny()))


def test_other_code_has_another_fingerprint(directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Store(tmp_path)
    kept.add(directory)
    step_size = parameters.step_size
    monkeypatch.setattr(parameters, "step_size", lambda nu: step_size(nu) * (1 + 1e-4))
    fingerprint._compute.cache_clear()
    assert kept.find(tiny()) is None
    assert kept.read(tiny()) is not None
    monkeypatch.undo()
    fingerprint._compute.cache_clear()
    assert kept.find(tiny()) is not None


def test_fingerprints_depend_on_the_model_and_the_seed_alone() -> None:
    base = fingerprint.compute(tiny())
    assert fingerprint.compute(tiny(lr=1e-2, steps=5)) == base
    assert fingerprint.agree(base, [value * (1 + 3e-7) for value in base])
    for other in (tiny(seed=1), tiny(LSTM), replace(tiny(), task=replace(tiny().task, data_length=5))):
        assert not fingerprint.agree(fingerprint.compute(other), base)
    assert not fingerprint.agree(base, [])


def test_damaged_and_foreign_records_are_named(directory: Path, tmp_path: Path) -> None:
    kept = Store(tmp_path)
    kept.add(directory)
    (path,) = tmp_path.iterdir()
    good = path.read_text()
    for text, message in (
        (good[: len(good) // 2], "is damaged"),
        ("[]", "has the format None"),
        (good.replace("delayssm run 1", "delayssm run 9"), "has the format 'delayssm run 9'"),
        (json.dumps({k: v for k, v in json.loads(good).items() if k != "answers"}), "it has no answers"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=f"{path.name}.*{message}"):
            kept.find(tiny())
