"""Full disks, kills and other processes: nothing is lost, and nothing is left that a restart does not clean up."""

import errno
import multiprocessing
import os
import random
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from delayssm_lab.data.catalogue import load
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.reader import Prepared
from delayssm_lab.data.prepared.writer import Writer
from tests.support import killing

FACTS = {"title": "Toys", "origin": "made here", "missing": [], "counts": {"train": 4}}
LARGE = 4 << 20


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DELAYSSM_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def make(size: int = 10, value: int = 1, ragged: bool = False) -> Prepared:
    with Writer("toys") as writer:
        if ragged:
            pieces = writer.ragged("texts")
            for _ in range(size // 1000):
                pieces.append(bytes(1000))
        else:
            writer.array("x", (size,), np.uint8)[:] = value
        writer.about(**FACTS)
    return load("toys")


@pytest.fixture
def one_megabyte() -> Iterator[None]:
    """Let no file grow beyond one megabyte, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("one_megabyte")
@pytest.mark.parametrize("ragged", [False, True])
def test_a_disk_that_is_full(ragged: bool, home: Path) -> None:
    with pytest.raises(OSError, match=rf"could not write {home}/toys/(x|texts)\.npy: File too large$"):
        make(LARGE, ragged=ragged)
    assert list(home.iterdir()) == []
    before = make(ragged=False).about
    with pytest.raises(OSError, match=r"could not write \S+/toys/x\.npy: File too large; .* before is untouched"):
        make(LARGE)
    assert [path.name for path in home.iterdir()] == ["toys"]
    assert load("toys").about == before
    load("toys").check()


@pytest.mark.parametrize("native", [True, False])
def test_space_is_allocated_before_an_array_is_filled(
    native: bool, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.delattr(os, "posix_fallocate", raising=False)
    with Writer("toys") as writer:
        array = writer.array("x", (LARGE,), np.uint8)
        (path,) = home.rglob("x.npy")
        assert path.stat().st_blocks * 512 >= LARGE
        array[-1] = 7
        writer.about(**FACTS)
    found = load("toys")["x"]
    assert found[-1] == 7
    assert not found[:-1].any()


def test_more_than_the_disk_has_is_not_even_begun(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": LARGE - 1})()
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    monkeypatch.setattr(os, "posix_fallocate", lambda *_: pytest.fail("allocated"), raising=False)
    with pytest.raises(OSError, match=r"x\.npy: No space left on device") as refused:
        make(LARGE)
    assert refused.value.errno == errno.ENOSPC
    assert list(home.iterdir()) == []


ON_A_SMALL_DISK = """
set -e
mount -t tmpfs -o size=2m tmpfs "$1"
exec "$2" -c '
import numpy as np
from delayssm_lab.data.prepared.writer import Writer
with Writer("toys") as writer:
    for name in "ab":
        writer.array(name, (1_500_000,), np.uint8)[:] = 1
'
"""


def test_a_small_disk(tmp_path: Path) -> None:
    """Fill a disk of two megabytes, where mounting one is permitted."""
    unshare = ["unshare", "--user", "--map-root-user", "--mount"]
    try:
        permitted = subprocess.run(
            [*unshare, "mount", "-t", "tmpfs", "tmpfs", tmp_path], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if permitted.returncode:
        pytest.skip("mounting is not permitted")
    done = subprocess.run(
        [*unshare, "sh", "-c", ON_A_SMALL_DISK, "sh", tmp_path, sys.executable],
        env={**os.environ, "DELAYSSM_DATA": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done  # and not killed by SIGBUS
    assert done.stderr.endswith(f"could not write {tmp_path}/toys/b.npy: No space left on device\n")


def test_a_place_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "data"):
        monkeypatch.setenv("DELAYSSM_DATA", str(place))
        with pytest.raises(OSError, match=rf"could not create {place}/toys: Not a directory; set DELAYSSM_DATA"):
            make()
    monkeypatch.setenv("DELAYSSM_DATA", str(tmp_path))
    (tmp_path / "toys").write_text("mine")
    with pytest.raises(DataError, match=f"{tmp_path}/toys: not a directory; remove it"):
        make()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "toys"]
    assert (tmp_path / "toys").read_text() == "mine"


def test_two_writers_of_the_same_data_set(home: Path) -> None:
    with Writer("toys") as first:
        first.put("x", np.array([1]))
        first.about(**FACTS)
        assert make(value=2)["x"][0] == 2
    assert load("toys")["x"].tolist() == [1]  # the one that finishes last wins
    assert [path.name for path in home.iterdir()] == ["toys"]


def test_another_process_replaces_it_at_the_same_moment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make()
    rename, moved = os.rename, []

    def renamed(source: Path, target: Path) -> None:
        if Path(source) == home / "toys" and not moved:  # the other process is faster
            moved.append(rename(source, home / "elsewhere"))
        rename(source, target)

    monkeypatch.setattr(os, "rename", renamed)
    assert make(value=3)["x"][0] == 3


def _written(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


def check_kills(write: Callable[[Path], None], kills: int, tmp_path: Path, seed: int = 0) -> None:
    """Kill a process at random moments and check the disk, then that a restart makes the same as without kills."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.killing"])

    def run(data: Path, kill_at: int) -> int | None:
        process = context.Process(target=killing.run, args=(write, tmp_path / "root", data, kill_at, tmp_path / "log"))
        process.start()
        process.join()
        return process.exitcode

    for existing in (False, True):  # whether there is an earlier version
        whole = tmp_path / f"whole-{existing}"
        if existing:
            assert run(whole, 0) == 0
        (tmp_path / "log").write_bytes(b"")
        assert run(whole, 0) == 0
        expected, moments = _written(whole), (tmp_path / "log").stat().st_size
        choose = random.Random(seed)
        for number in range(kills):
            data = tmp_path / f"killed-{existing}-{number}"
            if existing:
                assert run(data, 0) == 0
            for _ in range(2):  # a restart may be killed, too
                # Half of the moments are among the last, in which the data set takes its place.
                first = choose.choice([1, max(1, moments - 8)])
                assert run(data, choose.randint(first, moments)) in (-signal.SIGKILL, 0)
                for directory in (path for path in data.glob("[!.]*") if path.is_dir()):
                    Prepared(directory).check()  # there is none, or it is complete
            assert run(data, 0) == 0
            assert _written(data) == expected


@pytest.mark.parametrize("write", [killing.prepare, killing.generate], ids=["prepare", "generate"])
def test_kills(write: Callable[[Path], None], tmp_path: Path) -> None:
    check_kills(write, 3, tmp_path)


def test_leftovers_of_a_process_whose_number_is_used_again(home: Path) -> None:
    """In containers, every process has the same small number, and the host another name each time."""
    (home / f".toys.{socket.gethostname()}.{os.getpid()}.0.part").mkdir(parents=True)
    (home / ".toys.elsewhere.1.0.part").mkdir()
    make()
    assert [path.name for path in home.iterdir()] == ["toys"]


def test_a_kill_while_it_takes_its_place_loses_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier version is out of the way, and the new one is not there yet."""
    make(value=1)
    (home / ".toys.0.part").mkdir()
    (home / "toys").rename(home / ".toys.0.part" / "old")

    def fail() -> None:
        with Writer("toys"):
            raise DataError("damaged")

    with pytest.raises(DataError, match="damaged"):
        fail()
    assert load("toys")["x"][0] == 1
    assert [path.name for path in home.iterdir()] == ["toys"]
