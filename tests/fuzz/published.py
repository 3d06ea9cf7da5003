"""Fuzzing of the readers of published data: tiny data sets in the published layouts, mutated, then prepared.

A case is accepted, and then the prepared arrays are consistent, or refused by a DataError that names a file. Whatever
else happens is a failure: other exceptions, warnings, leftovers, open files, much memory or much time.
"""

import gzip
import hashlib
import io
import os
import resource
import shutil
import signal
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from unittest import mock

import numpy as np
from hypothesis import strategies as st

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.reader import Prepared
from delayssm_lab.data.prepared.writer import Writer
from delayssm_lab.data.published.dataset import DataSet
from delayssm_lab.data.published.mnist import PublishedMnist
from tests.fuzz.mutations import Files, mutate, mutate_files, repair_png, repair_tar
from tests.support import published

#: Seconds and bytes of memory that no case may need. Most take milliseconds, and files have a few megabytes at most.
SECONDS = 20
MEMORY = 400 << 20
LAYOUTS = ["folder", "any.tar", "any.tar.gz", "any.zip"]


def case(data: st.DataObject, tmp: Path) -> str:
    """Prepare one mutated data set below `tmp`, which is empty before and after.

    Return "accepted" or "clear error". Raise AssertionError otherwise.
    """
    name = data.draw(st.sampled_from(sorted(published.ALL)), "data set")
    dataset, files = _pristine(name)
    layout = data.draw(st.sampled_from(LAYOUTS), "layout")
    if data.draw(st.booleans(), "mutate files") or layout == "folder":
        files = mutate_files(data, files)
        if data.draw(st.integers(0, 3), "repair"):  # mostly, so that the checksums do not catch everything
            dataset, files = _repair(dataset, files)
    else:
        layout = f"mutated {layout}"
    root = tmp / "published"
    try:
        _write(data, root / dataset.folder, files, layout)
        # Waiting for the disk would take most of the time, and no case ends in a power failure.
        with mock.patch.dict(os.environ, {"DELAYSSM_DATA": str(tmp / "prepared")}), mock.patch("os.fsync"):
            return _prepare(dataset, root, tmp / "prepared", partial=data.draw(st.booleans(), "partial"))
    finally:
        shutil.rmtree(root, ignore_errors=True)
        shutil.rmtree(tmp / "prepared", ignore_errors=True)


@cache
def _pristine(name: str) -> tuple[DataSet, Files]:
    """Return a tiny data set and its files."""
    with TemporaryDirectory() as folder:
        dataset = published.ALL[name](Path(folder))
        paths = sorted(path for path in Path(folder).rglob("*") if path.is_file())
        return dataset, {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _repair(dataset: DataSet, files: Files) -> tuple[DataSet, Files]:
    """Make all checksums inside of the files right again, as if the mutated files had been published."""
    files = {name: repair_png(content) if name.endswith(".png") else content for name, content in files.items()}
    if "SHA256SUMS.txt" in files:
        others = [name for name in files if name.isprintable() and name != "SHA256SUMS.txt"]
        lines = [f"{hashlib.sha256(files[name]).hexdigest()} {name}" for name in others]
        files["SHA256SUMS.txt"] = "\n".join(lines).encode()
    if isinstance(dataset, PublishedMnist):
        dataset = replace(dataset, checksums={name: f"md5:{_inner_md5(files, name)}" for name in dataset.checksums})
    return dataset, files


def _inner_md5(files: Files, name: str) -> str:
    try:
        return hashlib.md5(gzip.decompress(files.get(f"{name}.gz", b""))).hexdigest()
    except (EOFError, OSError, zlib.error):
        return "0"


def _write(data: st.DataObject, folder: Path, files: Files, layout: str) -> None:
    """Write files into a folder or an archive, whose bytes are mutated if the layout says so."""
    folder.mkdir(parents=True)
    mutated, name = layout.startswith("mutated "), layout.removeprefix("mutated ")
    if layout == "folder":
        for file, content in files.items():
            try:
                published.put(folder / file, content)
            except OSError:  # a new name may collide with a folder
                continue
        return
    packed = _zip(files) if name.endswith(".zip") else _tar(files)
    if mutated and not name.endswith(".gz"):
        packed = mutate(data, packed)
    if name.endswith((".tar", ".tar.gz")) and mutated:
        inner = mutate(data, packed) if name.endswith(".gz") and data.draw(st.booleans(), "mutate inside") else packed
        packed = repair_tar(inner) if data.draw(st.booleans(), "repair headers") else inner
    if name.endswith(".gz"):
        packed = gzip.compress(packed, 1)
        packed = mutate(data, packed) if mutated else packed
    (folder / name).write_bytes(packed)


def _tar(files: Files) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def _zip(files: Files) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def _prepare(dataset: DataSet, root: Path, home: Path, partial: bool) -> str:
    before, open_before = _snapshot(root), _open_files()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = None
    with warnings.catch_warnings(record=True) as warned, _time_limit():
        warnings.simplefilter("always")
        try:
            with Writer(dataset.name) as writer:
                dataset.read(root, writer, partial)
        except DataError as error:
            refused = str(error)
        except Exception as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from error
        outcome = "clear error" if refused is not None else "accepted"
        if refused is None:
            _check(Prepared(home / dataset.name))
    assert not warned, [str(warning.message) for warning in warned]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) << 10
    assert grown < MEMORY, f"{grown:,} bytes of memory"
    assert _snapshot(root) == before, "published files were changed"
    assert _open_files() == open_before, "files are still open"
    left = sorted(path.name for path in home.iterdir()) if home.exists() else []
    assert left == ([] if refused is not None else [dataset.name]), f"left: {left}"
    if refused is not None:
        assert str(root) in refused, f"names no file: {refused}"
        assert "\n" not in refused
        assert refused.isprintable(), repr(refused)
    return outcome


def _check(prepared: Prepared) -> None:
    """Check that prepared arrays are undamaged and consistent."""
    prepared.check()
    counts = prepared.about["counts"]
    for name, array in prepared.items():
        if name.endswith("_offsets"):
            pieces = prepared[name.removesuffix("_offsets")]
            assert array[0] == 0
            assert array[-1] == len(pieces)
            assert (np.diff(array) >= 0).all(), name
        elif f"{name}_offsets" not in prepared and name != "signals":
            split = name.split("_")[0] if "_" in name else "all"
            assert len(array) == counts.get(split, 0), name
        if array.dtype.kind == "f" and name != "signals":  # signals may have gaps
            assert np.isfinite(array).all(), name


def _snapshot(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in root.rglob("*") if path.is_file()}


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"takes more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
