"""Files beyond their limits are refused with an error that names the file and the limit, in bounded memory."""

import gzip
import io
import re
import resource
import tarfile
import zipfile
from pathlib import Path

import pytest

from delayssm_lab.data import limits
from delayssm_lab.data.catalogue import find
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.writer import NullOutput
from delayssm_lab.data.published.file_trees import Folder, TarArchive, ZipArchive
from tests.support import published
from tests.support.published import put

ROOT = Path(__file__).parents[3]
BASE = "pathfinder32/curv_baseline"


@pytest.mark.parametrize(
    ("limit", "name", "file"),
    [
        ("IDX_BYTES", "mnist", "train-images-idx3-ubyte.gz"),
        ("BATCH_BYTES", "cifar10", "cifar-10-batches-bin/data_batch_1.bin"),
        ("CLIP_BYTES", "speech_commands", "no/00aa_nohash_0.wav"),
        ("LIST_BYTES", "speech_commands", "validation_list.txt"),
        ("REVIEW_BYTES", "imdb", "aclImdb/test/neg/9_4.txt"),
        ("RECORD_BYTES", "bidmc", "bidmc01.dat"),
        ("LIST_BYTES", "bidmc", "SHA256SUMS.txt"),
        ("IMAGE_BYTES", "pathfinder32", f"{BASE}/imgs/0/sample_3.png"),
        ("LIST_BYTES", "pathfinder32", f"{BASE}/metadata/0.npy"),
        ("EXPRESSION_BYTES", "listops", "listops-1000/basic_train.tsv, line 2"),
        ("STREAM_BYTES", "listops", "listops-1000/basic_train.tsv"),
        ("PAPER_CHARACTERS", "aan", "tsv_data/new_aan_pairs.train.tsv, line 1"),
        ("STREAM_BYTES", "aan", "tsv_data/new_aan_pairs.train.tsv"),
    ],
)
def test_each_kind_of_file(limit: str, name: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = published.ALL[name](tmp_path)
    monkeypatch.setattr(limits, limit, 20)
    with pytest.raises(DataError, match=rf"{re.escape(str(tmp_path / file))}: .* the limit of 20\b"):
        dataset.read(tmp_path, NullOutput())


@pytest.mark.parametrize("place", ["data_batch_1.bin.gz", "any.tar.gz", "any.zip"])
def test_what_grows_is_not_held_in_memory(place: str, tmp_path: Path) -> None:
    """Read a file of about two megabytes that grows to 512 MB."""
    name, pieces = "data_batch_1.bin", 512
    if place.endswith(".tar.gz"):
        entry = tarfile.TarInfo(name)
        entry.size = pieces * limits.MIB
        with tarfile.open(tmp_path / place, "w:gz", compresslevel=1) as archive, Path("/dev/zero").open("rb") as zeros:
            archive.addfile(entry, zeros)
    elif place.endswith(".gz"):
        with gzip.open(tmp_path / place, "wb", 1) as packed:
            for _ in range(pieces):
                packed.write(bytes(limits.MIB))
    else:
        whole = zipfile.ZipFile(tmp_path / place, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
        with whole, whole.open(name, "w") as member:
            for _ in range(pieces):
                member.write(bytes(limits.MIB))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match=rf"{name}.*: larger than the limit of {limits.BATCH_BYTES:,} bytes"):
        find("cifar10").read(tmp_path, NullOutput(), partial=True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 * 1024  # in units of 1024 bytes


def test_numbers_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        put(tmp_path / "open" / name, b"x")
    published.tar(tmp_path / "open", tmp_path / "a.tar")
    published.zipped(tmp_path / "open", tmp_path / "a.zip")
    monkeypatch.setattr(limits, "ENTRIES", 2)
    for tree, path in ((Folder, "open"), (TarArchive, "a.tar"), (ZipArchive, "a.zip")):
        with pytest.raises(DataError, match=f"{path}: more than 2 files"):
            tree(tmp_path / path)
    monkeypatch.setattr(limits, "ENTRIES", 3)
    monkeypatch.setattr(limits, "NAMES_BYTES", 2)
    with pytest.raises(DataError, match=r"a\.zip: more than .* 2 bytes of names"):
        ZipArchive(tmp_path / "a.zip")


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names(form: int, tmp_path: Path) -> None:
    for length, message in (
        (limits.NAME_BYTES + 1, "not a plain name"),
        (limits.TAR_HEADER_BYTES + 1, "headers beyond"),
    ):
        with tarfile.open(tmp_path / "a.tar", "w", format=form) as archive:
            archive.addfile(tarfile.TarInfo("x" * length))
        with pytest.raises(DataError, match=rf"a\.tar: .*{message}"):
            TarArchive(tmp_path / "a.tar")
    with tarfile.open(tmp_path / "a.tar", "w", format=form) as archive:
        archive.addfile(tarfile.TarInfo("x" * 500))
    assert list(TarArchive(tmp_path / "a.tar").names) == ["x" * 500]


def test_headers_that_never_end(tmp_path: Path) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("x" * 200))
    long_name = target.getvalue()[: 2 * 512]
    (tmp_path / "a.tar").write_bytes(long_name * 2000)
    with pytest.raises(DataError, match=r"a\.tar: .*headers beyond the limit"):
        TarArchive(tmp_path / "a.tar")


def test_sizes_of_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "open" / "x", bytes(1000))
    published.tar(tmp_path / "open", tmp_path / "a.tar.gz")
    published.zipped(tmp_path / "open", tmp_path / "a.zip")
    monkeypatch.setattr(limits, "ARCHIVE_BYTES", 1500)
    with pytest.raises(DataError, match=r"a\.tar\.gz: .*the limit of 1,500 bytes"):
        TarArchive(tmp_path / "a.tar.gz")
    monkeypatch.setattr(limits, "ZIP_DIRECTORY_BYTES", 46)
    with pytest.raises(DataError, match=r"a\.zip: .*directory is larger than the limit of 46 bytes"):
        ZipArchive(tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("bidmc01.hea", b"200.5(-7)", b"0(-7)", "gain 0.0"),
        ("bidmc01.hea", b"200.5(-7)", b"1e-300(-7)", "gain 1e-300"),
        ("bidmc01.hea", b"200.5(-7)", b"200.5(%s)" % (b"9" * 400), "baseline"),
        ("bidmc01.hea", b"bidmc01 3", b"bidmc01 three", "not a header"),
        ("bidmc01.hea", b"II,", b"PLETH,", "more than once"),
        ("bidmc_csv/bidmc_01_Numerics.csv", b"\n7,", b"\n1e300,", "beyond the limit of 1,000,000"),
        ("bidmc_csv/bidmc_01_Numerics.csv", b"\n7,", b"\ninf,", "beyond the limit of 1,000,000"),
        ("bidmc_csv/bidmc_01_Numerics.csv", b" PULSE", b" HR", "its columns are not"),
    ],
)
def test_numbers(file: str, old: bytes, new: bytes, message: str, tmp_path: Path) -> None:
    dataset = published.bidmc(tmp_path)
    content = (tmp_path / file).read_bytes()
    assert old in content
    (tmp_path / file).write_bytes(content.replace(old, new, 1))
    published.write_checksums(tmp_path)
    with pytest.raises(DataError, match=f"{re.escape(file)}: .*{message}"):
        dataset.read(tmp_path, NullOutput())


def test_the_size_of_an_image_is_checked_first(tmp_path: Path) -> None:
    """An image that announces 65,535 x 65,535 pixels, for which Pillow warns."""
    dataset = published.pathfinder32(tmp_path)
    path = tmp_path / BASE / "imgs" / "0" / "sample_3.png"
    content = path.read_bytes()
    path.write_bytes(content[:16] + b"\0\0\xff\xff" * 2 + content[24:])
    with pytest.raises(DataError, match=r"sample_3\.png: 65535 x 65535 pixels instead of 32 x 32"):
        dataset.read(tmp_path, NullOutput())


def test_more_rows_than_published_are_not_read(tmp_path: Path) -> None:
    dataset = published.listops(tmp_path)
    with (tmp_path / "listops-1000" / "basic_val.tsv").open("a") as file:
        file.write("5\t5\n" * 3 + "this line is not reached")
    with pytest.raises(DataError, match="2 samples for validation, more than the 1 published"):
        dataset.read(tmp_path, NullOutput())


def test_messages_are_one_printable_line() -> None:
    assert str(DataError("a\nb\x1b[31m\udcff")) == r"a\nb\x1b[31m\udcff"
    assert len(str(DataError("x" * 100_000))) < 2_100


def test_the_table_is_complete() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    listed = dict(re.findall(r"\| `(\w+)` \| ([\d.,]+) \|", page))
    values = {
        name: value for name, value in vars(limits).items() if name.isupper() and name not in ("KIB", "MIB", "GIB")
    }
    shown = {
        name: f"{value:,.6f}".rstrip("0").rstrip(".") if value < 1 else f"{value:,.0f}"
        for name, value in values.items()
    }
    shown |= {name: f"{value:,}" for name, value in values.items() if isinstance(value, int)}
    assert listed == shown
