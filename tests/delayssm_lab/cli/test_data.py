"""Tests of `delayssm data`."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from delayssm_lab.cli import data
from delayssm_lab.cli.data import check, prepare
from delayssm_lab.cli.data import list as list_
from delayssm_lab.data.catalogue import load
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published.dataset import DataSet
from tests.support import published


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """Return MNIST with five digits, whose files are in `published` of the data directory."""
    monkeypatch.setenv("DELAYSSM_DATA", str(tmp_path))
    dataset = published.mnist(tmp_path / "published" / "mnist")
    monkeypatch.setattr(list_, "datasets", lambda: (dataset,))
    for module in (check, prepare):
        monkeypatch.setattr(module, "find", lambda name: {"mnist": dataset}[name])
    return dataset


def test_commands() -> None:
    assert list(data.COMMANDS) == ["list", "check", "prepare", "generate"]


def test_prepare_check_and_list(tiny: DataSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    list_.command()
    assert "│ no " in capsys.readouterr().out
    prepare.command(("mnist",))
    assert capsys.readouterr().out == f"mnist is in {tmp_path / 'mnist'}\n"
    check.command(("mnist",))
    out = capsys.readouterr().out
    assert f"mnist: prepared arrays in {tmp_path / 'mnist'} are undamaged\n" in out
    assert f"mnist: published files in {tmp_path / 'published'} are undamaged\n" in out
    list_.command()
    assert "3 train, 2 test" in capsys.readouterr().out
    check.command(("mnist",), root=tmp_path / "elsewhere")
    assert "no published files below" in capsys.readouterr().out


def test_check_writes_nothing(tiny: DataSet, tmp_path: Path) -> None:
    check.command(("mnist",))
    assert [path.name for path in tmp_path.iterdir()] == ["published"]


def test_an_incomplete_data_set(
    tiny: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    larger = replace(tiny, counts={"train": 7, "test": 2})
    monkeypatch.setattr(prepare, "find", lambda name: larger)
    with pytest.raises(DataError, match=r"4 of 7 samples for train.*--partial"):
        prepare.command(("mnist",))
    assert not (tmp_path / "mnist").exists()
    prepare.command(("mnist",), partial=True)
    assert capsys.readouterr().out.endswith("without 4 of 7 samples for train\n")
    assert load("mnist").about["missing"] == ["4 of 7 samples for train"]


def test_damage_is_shown(tiny: DataSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare.command(("mnist",))
    (tmp_path / "mnist" / "train_y.npy").write_bytes(b"")
    list_.command()
    assert "instead of" in capsys.readouterr().out
    with pytest.raises(DataError, match=r"train_y\.npy: 0 bytes"):
        check.command(("mnist",))


def test_nothing_is_downloaded_if_all_files_are_there(tiny: DataSet) -> None:
    prepare.command(("mnist",), download=True)
    assert load("mnist").about["counts"] == {"train": 3, "test": 2}


@pytest.mark.parametrize(("module", "action"), [(prepare, "prepare"), (check, "check")])
def test_without_names(module: ModuleType, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        module.command(())
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"delayssm: there is nothing to {action}; name at least one data set: mnist, cifar10, ")
    assert error.endswith("pathfinder128-14\n")


@pytest.mark.parametrize("module", [prepare, check])
def test_a_root_that_is_no_directory(module: ModuleType, tiny: DataSet, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=f"{tmp_path}/file: not a directory; name the directory of the published files"):
        module.command(("mnist",), root=tmp_path / "file")
    with pytest.raises(DataError, match=f"no files of mnist, because there is no directory {tmp_path}/nowhere"):
        module.command(("mnist",), root=tmp_path / "nowhere")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "published"]
