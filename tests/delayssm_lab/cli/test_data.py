"""What `delayssm data` says and does."""

from dataclasses import replace
from pathlib import Path

import pytest

from delayssm_lab.cli import datasets
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.reader import load
from delayssm_lab.data.published.dataset import DataSet
from tests.support import published


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """MNIST of five digits, published in `published` of the directory of the data."""
    monkeypatch.setenv("DELAYSSM_DATA", str(tmp_path))
    dataset = published.mnist(tmp_path / "published" / "mnist")
    monkeypatch.setattr(datasets, "datasets", lambda: (dataset,))
    monkeypatch.setattr(datasets, "find", lambda name: {"mnist": dataset}[name])
    return dataset


def test_commands() -> None:
    assert list(datasets.COMMANDS)[:3] == ["list", "check", "prepare"]


def test_prepare_check_and_list(tiny: DataSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets.list_()
    assert "│ no " in capsys.readouterr().out
    datasets.prepare(("mnist",))
    assert capsys.readouterr().out == f"mnist is in {tmp_path / 'mnist'}\n"
    datasets.check(("mnist",))
    out = capsys.readouterr().out
    assert f"mnist: whole as prepared in {tmp_path / 'mnist'}\n" in out
    assert f"mnist: whole as published in {tmp_path / 'published'}\n" in out
    datasets.list_()
    assert "3 train, 2 test" in capsys.readouterr().out
    datasets.check(("mnist",), root=tmp_path / "elsewhere")
    assert "no published files below" in capsys.readouterr().out


def test_check_writes_nothing(tiny: DataSet, tmp_path: Path) -> None:
    datasets.check(("mnist",))
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


def test_a_part(
    tiny: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    larger = replace(tiny, counts={"train": 7, "test": 2})
    monkeypatch.setattr(datasets, "find", lambda name: larger)
    with pytest.raises(DataError, match=r"4 of 7 samples for train.*--partial"):
        datasets.prepare(("mnist",))
    assert not (tmp_path / "mnist").exists()
    datasets.prepare(("mnist",), partial=True)
    assert capsys.readouterr().out.endswith("without 4 of 7 samples for train\n")
    assert load("mnist").about["missing"] == ["4 of 7 samples for train"]


def test_damage_is_shown(tiny: DataSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    datasets.prepare(("mnist",))
    (tmp_path / "mnist" / "train_y.npy").write_bytes(b"")
    datasets.list_()
    assert "instead of" in capsys.readouterr().out
    with pytest.raises(DataError, match=r"train_y\.npy: 0 bytes"):
        datasets.check(("mnist",))


def test_nothing_is_fetched_if_all_is_there(tiny: DataSet) -> None:
    datasets.prepare(("mnist",), download=True)
    assert load("mnist").about["counts"] == {"train": 3, "test": 2}
