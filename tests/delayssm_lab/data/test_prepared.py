"""Prepared data is complete at every moment, and damage is detected."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delayssm_lab.data import limits
from delayssm_lab.data.catalogue import load
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.location import data_root
from delayssm_lab.data.prepared.reader import Prepared
from delayssm_lab.data.prepared.writer import Writer

FACTS = {"title": "Toys", "origin": "made here", "missing": [], "counts": {"train": 4}}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYSSM_DATA", str(tmp_path))


def make(value: int = 1) -> Prepared:
    with Writer("toys") as writer:
        writer.array("train_x", (4, 3), np.int16)[1:] = value
        writer.put("train_y", np.arange(4.0))
        pieces = writer.ragged("texts")
        for piece in (b"one", b"", np.array([1, 2], np.uint8)):
            pieces.append(piece)
        writer.about(**FACTS, words=["a"])
    return load("toys")


def test_what_is_written_is_read() -> None:
    found = make()
    assert found["train_x"].tolist() == [[0, 0, 0], *[[1, 1, 1]] * 3]
    assert found["train_x"].dtype == np.int16
    assert found["texts"].tobytes() == b"one\1\2"
    assert found["texts_offsets"].tolist() == [0, 3, 3, 5]
    assert isinstance(found["texts"], np.memmap)
    assert sorted(found) == ["texts", "texts_offsets", "train_x", "train_y"]
    assert FACTS.items() <= found.about.items()
    assert (found.about["name"], found.about["words"]) == ("toys", ["a"])
    with pytest.raises(ValueError, match="read-only"):
        found["train_y"][0] = 5
    found.check()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.lists(st.binary(max_size=40), max_size=12))
def test_pieces_come_back(pieces: list[bytes]) -> None:
    with Writer("toys") as writer:
        ragged = writer.ragged("texts")
        for piece in pieces:
            ragged.append(piece)
        writer.about(**FACTS)
    flat, offsets = load("toys")["texts"], load("toys")["texts_offsets"]
    assert [flat[a:b].tobytes() for a, b in pairwise(offsets)] == pieces


def test_where_data_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert data_root() == tmp_path
    monkeypatch.delenv("DELAYSSM_DATA")
    assert data_root() == Path("data")


def test_not_prepared() -> None:
    with pytest.raises(
        DataError, match=r"mnist is not prepared in .*: delayssm data prepare mnist --download, or .* --root DIR"
    ):
        load("mnist")
    with pytest.raises(DataError, match=r"are in DIR\), or delayssm data generate listops$"):
        load("listops")
    with pytest.raises(DataError, match=r"not prepared in \S+. Run: delayssm data generate pathfinder20-3$"):
        load("pathfinder20-3")
    with pytest.raises(DataError, match="there is no data set 'toys'"):
        load("toys")


@pytest.mark.parametrize("name", ["train_x", "texts", "texts_offsets"])
def test_a_cut_array_is_noticed_at_once(name: str, tmp_path: Path) -> None:
    make()
    path = tmp_path / "toys" / f"{name}.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=f"{name}.npy: .* bytes instead of .*; prepare toys again"):
        load("toys")
    path.unlink()
    with pytest.raises(DataError, match=f"{name}.npy: 0 bytes"):
        load("toys")


def test_other_damage(tmp_path: Path) -> None:
    make()
    path = tmp_path / "toys" / "train_y.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\1")
    with pytest.raises(DataError, match="toys: its content has changed"):
        load("toys").check()
    path.write_bytes(whole.replace(b"f8", b"i8"))
    with pytest.raises(DataError, match=r"train_y\.npy: int64 \(4,\) is not what about\.json says"):
        load("toys")["train_y"]
    path.write_bytes(b"x" * len(whole))
    with pytest.raises(DataError, match=r"train_y\.npy: damaged"):
        load("toys")["train_y"]
    (tmp_path / "toys" / "about.json").write_text("{")
    with pytest.raises(DataError, match=r"about\.json: damaged"):
        load("toys")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"arrays": []}, "arrays is not a dict"),
        ({"arrays": {"../../x": {"shape": [1], "dtype": "u1", "bytes": 1}}}, "is not the name of an array"),
        ({"arrays": {"train_x": {"shape": [1], "dtype": "u1"}}}, "bytes is not a int"),
        ({"arrays": {"train_x": 5}}, "is not an object"),
        ({"counts": {"train": "many"}}, "train is not a int"),
        ({"digest": None}, "digest is not a str"),
        ({"format": None}, "its format is None, not 'delayssm data 1'"),
        ({"format": "delayssm data 2"}, "its format is 'delayssm data 2', not"),
        ({"origin": ["published"]}, "origin is not a str"),
    ],
)
def test_a_damaged_description(damage: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "toys" / "about.json"
    path.write_text(json.dumps({**make().about, **damage}))
    with pytest.raises(DataError, match=rf"about\.json: damaged \(.*{message}"):
        load("toys")


@pytest.mark.parametrize("content", [b"[" * 100_000, b"5", b"\xff", b" " * (limits.ABOUT_BYTES + 1)])
def test_a_description_that_is_none(content: bytes, tmp_path: Path) -> None:
    make()
    (tmp_path / "toys" / "about.json").write_bytes(content)
    with pytest.raises(DataError, match=r"about\.json: damaged"):
        load("toys")


def test_an_archive_in_the_place_of_an_array(tmp_path: Path) -> None:
    make()
    path = tmp_path / "toys" / "train_y.npy"
    size = path.stat().st_size
    path.write_bytes(b"PK\5\6".ljust(size, b"\0"))
    with pytest.raises(DataError, match=r"train_y\.npy: damaged"):
        load("toys").check()


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    make()
    path = tmp_path / "toys" / "train_y.npy"
    np.save(path, np.array([{}]), allow_pickle=True)
    about = json.loads((tmp_path / "toys" / "about.json").read_text())
    about["arrays"]["train_y"]["bytes"] = path.stat().st_size
    (tmp_path / "toys" / "about.json").write_text(json.dumps(about))
    with pytest.raises(DataError, match=r"train_y\.npy: damaged"):
        load("toys")["train_y"]


@pytest.mark.parametrize("failure", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failure_leaves_what_was_there(failure: BaseException, tmp_path: Path) -> None:
    before = make().about

    def fail() -> None:
        with Writer("toys") as writer:
            writer.array("train_x", (4, 3), np.int16)[:] = 9
            writer.ragged("texts").append(b"x")
            raise failure

    with pytest.raises(type(failure)):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["toys"]
    assert load("toys").about == before
    load("toys").check()


def test_a_new_one_takes_the_place_of_the_old(tmp_path: Path) -> None:
    old = make(1)["train_x"]
    assert make(2)["train_x"].max() == 2
    assert old.max() == 1  # an open array is still readable
    assert [path.name for path in tmp_path.iterdir()] == ["toys"]


def test_facts_must_be_given() -> None:
    with pytest.raises(ValueError, match=r"about\.json of toys has no counts, missing, origin, title"), Writer("toys"):
        pass


SLOW = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process may inherit SIG_IGN
from delayssm_lab.data.prepared.writer import Writer
with Writer("toys") as writer:
    writer.array("train_x", (4, 3), "int16")[:] = 7
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_killed_process_does_no_harm(tmp_path: Path) -> None:
    before = make().about
    process = subprocess.Popen([sys.executable, "-c", SLOW], stdout=subprocess.PIPE, text=True, env={**os.environ})
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        staged = [path for path in tmp_path.iterdir() if path.name != "toys"]
        assert len(staged) == 1
        make()
        assert staged[0].exists()  # its process is still running
        process.send_signal(signal.SIGKILL)
    assert staged[0].exists()
    assert load("toys").about == before
    make()
    assert [path.name for path in tmp_path.iterdir()] == ["toys"]


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ}
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    assert list(tmp_path.iterdir()) == []
