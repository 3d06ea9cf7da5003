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
import stat
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
    if layout == "folder" or data.draw(st.integers(0, 2), "mutate files"):
        files = mutate_files(data, files)
        if data.draw(st.integers(0, 7), "repair"):  # mostly, so that the checksums do not catch everything
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
    packed = _zip(data, files) if name.endswith(".zip") else _tar(data, files)
    if mutated and not name.endswith(".gz"):
        packed = mutate(data, packed)
    if name.endswith((".tar", ".tar.gz")) and mutated:
        inner = mutate(data, packed) if name.endswith(".gz") and data.draw(st.booleans(), "mutate inside") else packed
        packed = repair_tar(inner) if data.draw(st.booleans(), "repair headers") else inner
    if name.endswith(".gz"):
        packed = gzip.compress(packed, 1)
        packed = mutate(data, packed) if mutated else packed
    (folder / name).write_bytes(packed)


def _tar(data: st.DataObject, files: Files) -> bytes:
    """Pack files, sometimes one of them as a link, a device or something unknown."""
    target = io.BytesIO()
    odd = data.draw(st.sampled_from([*files, *[None] * 50]), "odd entry")
    kind = data.draw(st.sampled_from([b"1", b"2", b"3", b"4", b"6", b"7", b"S", b"L", b"K", b"x", b"g", b"Z"]), "kind")
    form = data.draw(st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]), "format")
    with tarfile.open(fileobj=target, mode="w", format=form) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name if form != tarfile.USTAR_FORMAT else name[:80])
            entry.size, entry.linkname = len(content), "/etc/passwd"
            entry.type = kind if name == odd else tarfile.REGTYPE
            entry.pax_headers = {"comment": "x"} if form == tarfile.PAX_FORMAT else {}
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def _zip(data: st.DataObject, files: Files) -> bytes:
    """Pack files, sometimes one of them as a link, as an encrypted file, or by another method."""
    target = io.BytesIO()
    odd = data.draw(st.sampled_from([*files, *[None] * 50]), "odd entry")
    method = data.draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]), "method")
    mode = data.draw(st.sampled_from([0, stat.S_IFREG, stat.S_IFLNK, stat.S_IFIFO]), "mode")
    encrypted = data.draw(st.booleans(), "encrypted")
    with zipfile.ZipFile(target, "w", compresslevel=1) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = mode << 16 if name == odd else 0
            archive.writestr(entry, content, method if name == odd else zipfile.ZIP_DEFLATED)
            if name == odd and encrypted:  # the flag is written with the directory, when the archive is closed
                entry.flag_bits |= 1
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
        if refused is None:
            _check(home / dataset.name)
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
    return "accepted" if refused is None else "clear error"


def _check(directory: Path) -> None:
    """Check that prepared arrays are undamaged and consistent."""
    try:
        prepared = Prepared(directory)
        prepared.check()
    except DataError as error:
        raise AssertionError(f"what was accepted cannot be read: {error}") from error
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
