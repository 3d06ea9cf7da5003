"""Archives with odd members, and odd things in the place of files: refused by an error that names them."""

import bz2
import gzip
import io
import os
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayssm_lab.data.catalogue import find
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.writer import NullOutput
from delayssm_lab.data.published.file_trees import Folder, TarArchive, ZipArchive
from delayssm_lab.data.published.streams import gunzip
from tests.support import published
from tests.support.published import put

BATCH = "data_batch_2.bin"


def _tar(path: Path, *entries: tarfile.TarInfo) -> None:
    with tarfile.open(path, "w") as archive:
        for entry in entries:
            archive.addfile(entry, io.BytesIO(b"x" * entry.size))


def _entry(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, **headers: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.size, entry.linkname, entry.pax_headers = kind, size, "../../secret", headers
    return entry


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a named pipe"),
    ],
)
def test_a_tar_entry_that_is_no_file(kind: bytes, message: str, tmp_path: Path) -> None:
    _tar(tmp_path / "a.tar", _entry("x", size=3), _entry("odd", kind), _entry("y", size=600))
    tree = TarArchive(tmp_path / "a.tar")
    assert [tree.read(name, limit=1000) for name in "xy"] == [b"xxx", b"x" * 600]  # others can still be read
    with pytest.raises(DataError, match=rf"a\.tar: odd: {message}, which is not read"):
        tree.read("odd", limit=1000)


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_SPARSE, b"V", b"M", b"Z"])
def test_a_tar_entry_of_an_unknown_kind(kind: bytes, tmp_path: Path) -> None:
    _tar(tmp_path / "a.tar", _entry("odd", kind))
    with pytest.raises(DataError, match=r"a\.tar: .*'odd' is of the kind"):
        TarArchive(tmp_path / "a.tar")


def test_a_sparse_file_of_the_posix_format(tmp_path: Path) -> None:
    headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "odd", "GNU.sparse.realsize": "99"}
    _tar(tmp_path / "a.tar", _entry("GNUSparseFile.0/odd", size=9, **headers))
    with pytest.raises(DataError, match=r"a\.tar: odd: a sparse file"):
        TarArchive(tmp_path / "a.tar").read("odd", limit=1000)


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_formats(form: int, tmp_path: Path) -> None:
    names = ["short", "d" * 60 + "/" + "e" * 90, "ünï/cödé"]
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=form) as archive:
        archive.pax_headers = {"comment": "of all entries"}
        for name in names:
            archive.addfile(_entry(name, size=700), io.BytesIO(name[0].encode() * 700))
    tree = TarArchive(tmp_path / "a.tar.gz")
    assert sorted(tree.names) == sorted(names)
    assert all(tree.read(name, limit=1000)[:1] == name[0].encode()[:1] for name in names)


def test_a_bit_turned_over_in_a_compressed_tar(tmp_path: Path) -> None:
    """Also where deflate itself does not notice it, because the checksum at the end is verified."""
    put(tmp_path / "open" / "x", bytes(range(256)) * 4)
    published.tar(tmp_path / "open", tmp_path / "a.tar")
    content = (tmp_path / "a.tar").read_bytes()
    packed = bytearray(gzip.compress(content, 0))
    packed[packed.index(bytes(range(256)))] ^= 1
    (tmp_path / "b.tar.gz").write_bytes(packed)
    with pytest.raises(DataError, match=r"b\.tar\.gz: damaged"):
        TarArchive(tmp_path / "b.tar.gz")


@given(
    st.lists(st.tuples(st.binary(max_size=300), st.integers(0, 3)), min_size=1, max_size=5), st.integers(1_000, 200_000)
)
def test_gzip_files_with_several_members(members: list[tuple[bytes, int]], size: int) -> None:
    """Members that are larger or smaller than a chunk, with zeros after them."""
    packed = b"".join(gzip.compress(content * 900) + bytes(zeros) for content, zeros in members)
    stream = gunzip(io.BytesIO(packed))
    assert b"".join(iter(lambda: stream.read(size), b"")) == gzip.decompress(packed)
    assert gunzip(io.BytesIO(packed)).read() == gzip.decompress(packed)
    with pytest.raises((EOFError, zlib.error)):
        gunzip(io.BytesIO(gzip.compress(b"x" * 90)[:-1] if size % 2 else packed + b"garbage")).read()


def test_names_that_become_the_same(tmp_path: Path) -> None:
    _tar(tmp_path / "a.tar", _entry("x"), _entry("./x"))
    with pytest.raises(DataError, match=r"a\.tar: contains x more than once"):
        TarArchive(tmp_path / "a.tar")


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", "a\udcff"])
def test_names_that_cannot_be_printed(name: str, tmp_path: Path) -> None:
    _tar(tmp_path / "a.tar", _entry(name))
    with pytest.raises(DataError, match=r"a\.tar: refused, because it contains .*not a plain name"):
        TarArchive(tmp_path / "a.tar")


def _zip(path: Path, entry: zipfile.ZipInfo, method: int, flags: int) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "fine")
        archive.writestr(entry, "odd", method)
        entry.flag_bits |= flags  # written with the directory, when the archive is closed


@pytest.mark.parametrize(
    ("mode", "flags", "method", "message"),
    [
        (0, 1, zipfile.ZIP_STORED, "an encrypted file"),
        (0, 0, zipfile.ZIP_BZIP2, "a file compressed by method 12"),
        (0, 0, zipfile.ZIP_LZMA, "a file compressed by method 14"),
        (stat.S_IFLNK, 0, zipfile.ZIP_STORED, "a symbolic link"),
        (stat.S_IFIFO, 0, zipfile.ZIP_STORED, "a device or pipe"),
    ],
)
def test_a_zip_entry_that_is_no_plain_file(mode: int, flags: int, method: int, message: str, tmp_path: Path) -> None:
    entry = zipfile.ZipInfo("odd")
    entry.external_attr = mode << 16
    _zip(tmp_path / "a.zip", entry, method, flags)
    tree = ZipArchive(tmp_path / "a.zip")
    assert tree.read("x", limit=1000) == b"fine"
    with pytest.raises(DataError, match=rf"a\.zip: odd: {message}, which is not read"):
        tree.read("odd", limit=1000)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", bz2.compress(b"x"), b"7z\xbc\xaf\x27\x1c" * 200])
def test_an_unknown_archive(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}: damaged or incomplete"):
        find("mnist").read(tmp_path, NullOutput())


@pytest.mark.parametrize("odd", ["pipe", "device", "folder", "nothing"])
def test_odd_things_in_the_place_of_a_file(odd: str, tmp_path: Path) -> None:
    dataset = published.cifar10(tmp_path)
    path = tmp_path / "cifar-10-batches-bin" / BATCH
    path.unlink()
    if odd == "pipe":
        os.mkfifo(path)
    elif odd == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if odd == "device" else "nowhere")
    with pytest.raises(DataError, match=BATCH):
        dataset.read(tmp_path, NullOutput())


@pytest.mark.parametrize("name", ["a.tar", "a.zip"])
def test_a_pipe_in_the_place_of_an_archive(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match=f"{name}: not a regular file"):
        find("mnist").read(tmp_path, NullOutput())


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """In folders, which are the user's own."""
    put(tmp_path / "there", b"x")
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "here").symlink_to(tmp_path / "there")
    assert Folder(tmp_path / "open").read("here", limit=10) == b"x"


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    place = os.open(tmp_path, os.O_RDONLY)
    for _ in range(17):  # until the path is too long for the system
        os.mkdir("d" * 250, dir_fd=place)
        below = os.open("d" * 250, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(place)
    with pytest.raises(DataError, match=r"ddd: could not be read \(File name too long\)"):
        Folder(tmp_path)
