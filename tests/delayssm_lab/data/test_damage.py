"""Damaged files are refused, even with `partial`, and the message names the file."""

import gzip
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.prepared.writer import NullOutput
from delayssm_lab.data.published.file_trees import Folder, TarArchive, ZipArchive
from tests.support import published
from tests.support.published import clip, put

Damage = Callable[[Path], None]


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip_last_bit(path: Path) -> None:
    *content, last = path.read_bytes()
    path.write_bytes(bytes([*content, last ^ 1]))


def write(content: bytes) -> Damage:
    return lambda path: put(path, content)


def change(old: bytes, new: bytes) -> Damage:
    def apply(path: Path) -> None:
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new, 1))

    return apply


def idx(*sizes: int, kind: int = 0x800) -> Damage:
    content = struct.pack(f">{len(sizes) + 1}I", kind + len(sizes), *sizes) + bytes(int(np.prod(sizes)))
    return write(gzip.compress(content))


def relisted(damage: Damage) -> Damage:
    """Return damage that the list of checksums does not reveal."""

    def apply(path: Path) -> None:
        damage(path)
        published.write_checksums(path.parent if path.parent.name != "bidmc_csv" else path.parents[1])

    return apply


CASES: list[tuple[str, str, Damage, str]] = [
    ("mnist", "train-images-idx3-ubyte.gz", truncate, "damaged or incomplete"),
    ("mnist", "train-images-idx3-ubyte.gz", write(b"no gzip"), "damaged or incomplete"),
    ("mnist", "train-images-idx3-ubyte.gz", idx(3, 28, 28), "its md5 is"),
    ("mnist", "train-images-idx3-ubyte.gz", idx(3, 28, 28, kind=0x900), "begins with 00000903"),
    ("mnist", "train-images-idx3-ubyte.gz", idx(2, 27, 28), r"images of \(27, 28\) pixels"),
    ("mnist", "train-images-idx3-ubyte.gz", write(gzip.compress(struct.pack(">4I", 0x803, 9, 28, 28))), "0 values"),
    ("mnist", "t10k-labels-idx1-ubyte.gz", idx(1), "1 labels for 2 images"),
    ("cifar10", "cifar-10-batches-bin/data_batch_3.bin", truncate, "are not a multiple of the record size"),
    ("cifar10", "cifar-10-batches-bin/test_batch.bin", write(b"\x0a" + bytes(3072)), "the label 10 is not"),
    ("speech_commands", "testing_list.txt", Path.unlink, "list of held-out clips is missing"),
    ("speech_commands", "testing_list.txt", write(b"no/00aa_nohash_2.wav"), "is listed twice"),
    ("speech_commands", "validation_list.txt", write(b"\xff\xfe"), "not UTF-8"),
    ("speech_commands", "yes/00aa_nohash_1.wav", truncate, "94 samples|not a complete wave file"),
    ("speech_commands", "yes/00aa_nohash_1.wav", write(b""), "not a complete wave file"),
    ("speech_commands", "yes/00aa_nohash_1.wav", write(clip(np.ones(9), rate=8000)), "at 8000 Hz"),
    ("speech_commands", "yes/00aa_nohash_1.wav", write(clip(np.ones(8), channels=2)), "2 channels"),
    ("speech_commands", "yes/00aa_nohash_1.wav", write(clip(np.ones(16_001))), "16,001 samples"),
    ("speech_commands", "yes/00aa_nohash_1.wav", write(clip(np.ones(0))), "0 samples"),
    ("bidmc", "SHA256SUMS.txt", Path.unlink, "list of checksums is missing"),
    ("bidmc", "SHA256SUMS.txt", write(b"abc"), "not a checksum and a name"),
    ("bidmc", "SHA256SUMS.txt", change(b"bidmc01.dat", b"other.dat"), "no checksum of bidmc01.dat"),
    ("bidmc", "bidmc01.dat", truncate, "its sha256 is"),
    ("bidmc", "bidmc01.dat", relisted(truncate), "bytes instead of 360,006"),
    ("bidmc", "bidmc01.dat", relisted(flip_last_bit), "checksum of II"),
    ("bidmc", "bidmc01.hea", relisted(change(b"3 125", b"3 250")), "60,001 samples at 250.0 Hz"),
    ("bidmc", "bidmc01.hea", relisted(change(b"PLETH", b"PULSE")), "no signal PLETH"),
    ("bidmc", "bidmc01.hea", relisted(change(b"bidmc01 3", b"bidmc01 4")), "describes 3 signals instead of 4"),
    ("bidmc", "bidmc01.hea", relisted(change(b".dat 16 ", b".dat 212 ")), "not format 16"),
    ("bidmc", "bidmc_csv/bidmc_02_Numerics.csv", relisted(change(b"\n480,", b"\nx,")), "could not convert"),
    ("bidmc", "bidmc_csv/bidmc_02_Numerics.csv", relisted(change(b" RESP", b" BREATH")), "its columns are not"),
    ("bidmc", "bidmc_csv/bidmc_02_Numerics.csv", relisted(change(b"\n0,90,90,20,99", b"")), "480 seconds"),
    ("imdb", "aclImdb/train/pos/0_10.txt", write(b"\xff"), "not UTF-8"),
    ("imdb", "aclImdb/train/pos/5_4.txt", write(b"x"), "a rating of 4 is not pos"),
    ("imdb", "aclImdb/test/neg/5_7.txt", write(b"x"), "a rating of 7 is not neg"),
    ("imdb", "aclImdb/test/neg/9_4.txt", write(b""), "empty"),
    ("imdb", "aclImdb/test/neg/9_4.txt", write(b"a\0b"), "has a byte 0"),
    ("listops", "listops-1000/basic_val.tsv", change(b"\n5\t5", b"\n\t5"), "line 2: not an expression"),
    ("listops", "listops-1000/basic_val.tsv", change(b"Source", b"Quelle"), "does not begin with the line"),
    ("listops", "listops-1000/basic_val.tsv", change(b"\t5\n", b""), "line 2: not an expression, a tab and a digit"),
    ("listops", "listops-1000/basic_val.tsv", change(b"\t5\n", b"\t11\n"),
     "line 2: not an expression, a tab and a digit"),
    ("listops", "listops-1000/basic_train.tsv", change(b"[SM 3", b"[SUM 3"), r"line 3: '\[SUM' is not a symbol"),
    ("listops", "listops-1000/basic_train.tsv", change(b"[SM 3", b"[SM 33"), "line 3: '33' is not a symbol"),
    ("listops", "listops-1000/basic_train.tsv", change(b"[SM", b"\xff"), "not UTF-8"),
    ("listops", "listops-1000/basic_train_2.tsv", write(b""), "keep only one"),
    ("aan", "tsv_data/new_aan_pairs.eval.tsv", change(b"0.0\t", b"2.0\t"), "line 2: not a label of 0 or 1"),
    ("aan", "tsv_data/new_aan_pairs.eval.tsv", change(b"0.0\t7\t", b"0.0\t"), "line 2: not a label of 0 or 1"),
    ("aan", "tsv_data/new_aan_pairs.test.tsv", change(b"\\xe9", b"\xe9"), "not UTF-8"),
    ("aan", "tsv_data/new_aan_pairs.test.tsv", change(b"\tb'one'", b"\t\"b'one'"), "unexpected end of data"),
    ("pathfinder32", "pathfinder32/curv_baseline/imgs/9/sample_3.png", write(b""), "not a complete image"),
    ("pathfinder32", "pathfinder32/curv_baseline/imgs/9/sample_3.png", truncate, "not a complete image"),
    ("speech_commands", "yes/00aa_nohash_1.wav", change(b"WAVEfmt \x10\0\0\0", b"WAVEfmt \xff\xff\xff\x7f"),
     "not a complete wave file"),
    ("pathfinder32", "pathfinder32/curv_baseline/metadata/9.npy", change(b"sample_3", b"sample_172"),
     "is listed twice"),
    ("pathfinder32", "pathfinder32/curv_baseline/metadata/9.npy", write(b"\x93NUMPY"), "not UTF-8"),
    ("pathfinder32", "pathfinder32/curv_baseline/metadata/9.npy", change(b" 3 1 ", b" 3 2 "), "line 2: not a folder"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "file", "damage", "message"), CASES, ids=[f"{c[1]}: {c[3]}" for c in CASES])
def test_damage(name: str, file: str, damage: Damage, message: str, tmp_path: Path) -> None:
    dataset = published.ALL[name](tmp_path)
    assert dataset.read(tmp_path, NullOutput()) == []
    damage(tmp_path / file)
    with pytest.raises(DataError, match=message) as refused:
        dataset.read(tmp_path, NullOutput(), partial=True)
    assert Path(file).name in str(refused.value)


def test_labels_of_mnist(tmp_path: Path) -> None:
    dataset = published.mnist(tmp_path)
    idx(1, 28, 28)(tmp_path / "t10k-images-idx3-ubyte.gz")
    put(tmp_path / "t10k-labels-idx1-ubyte.gz", gzip.compress(struct.pack(">2I", 0x801, 1) + b"\x0a"))
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz: the label 10 is not a digit"):
        dataset.read(tmp_path, NullOutput(), partial=True)


@pytest.mark.parametrize(
    ("name", "file", "missing"),
    [
        ("cifar10", "cifar-10-batches-bin/data_batch_2.bin", "data_batch_2.bin"),
        ("speech_commands", "yes/00aa_nohash_3.wav", "1 clips of testing_list.txt, such as yes/00aa_nohash_3.wav"),
        ("bidmc", "bidmc02.dat", "bidmc02.dat"),
        ("listops", "listops-1000/basic_val.tsv", "basic_val.tsv"),
        ("aan", "tsv_data/new_aan_pairs.eval.tsv", "new_aan_pairs.eval.tsv"),
        ("pathfinder32", "pathfinder32/curv_baseline/imgs/9/sample_3.png", "1 images, such as imgs/9/sample_3.png"),
        ("pathfinder32", "pathfinder32/curv_baseline/metadata/9.npy", "2 labels of images, such as imgs/9/sample_1"),
    ],
)  # fmt: skip
def test_missing_files_are_reported(name: str, file: str, missing: str, tmp_path: Path) -> None:
    dataset = published.ALL[name](tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(DataError, match=re.escape(missing)):
        dataset.read(tmp_path, NullOutput())
    assert any(missing in item for item in dataset.read(tmp_path, NullOutput(), partial=True))


def test_too_many_characters(tmp_path: Path) -> None:
    dataset = published.imdb(tmp_path)
    put(tmp_path / "aclImdb" / "train" / "neg" / "9_4.txt", "".join(map(chr, range(1000, 1270))).encode() * 15)
    with pytest.raises(DataError, match=rf"{tmp_path}: 27\d tokens do not fit into bytes"):
        dataset.read(tmp_path, NullOutput())


def test_missing_words(tmp_path: Path) -> None:
    dataset = published.speech_commands(tmp_path)
    for path in (tmp_path / "no").iterdir():
        path.unlink()
    missing = dataset.read(tmp_path, NullOutput(), partial=True)
    assert missing[:2] == ["1 of 2 words: no", "1 clips of validation_list.txt, such as no/00aa_nohash_2.wav"]
    put(tmp_path / "maybe" / "00aa_nohash_0.wav", clip(np.ones(5)))
    with pytest.raises(DataError, match="the folder maybe is not a published word"):
        dataset.read(tmp_path, NullOutput(), partial=True)


def test_what_is_missing_is_shown_in_one_short_line(tmp_path: Path) -> None:
    dataset = published.speech_commands(tmp_path)
    put(tmp_path / "testing_list.txt", b"yes/00aa_nohash_3.wav\n" + b"\x1b[31m" * 1_000_000)
    (missing,) = (item for item in dataset.read(tmp_path, NullOutput(), partial=True) if "testing_list" in item)
    assert r"such as \x1b[31m\x1b[31m" in missing
    assert len(missing) < 5_000


@pytest.mark.parametrize("name", ["../evil.txt", "a/../../evil.txt", "/evil.txt"])
def test_names_that_lead_out_of_an_archive(name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, "x")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    for tree, file in ((ZipArchive, "a.zip"), (TarArchive, "a.tar")):
        with pytest.raises(DataError, match=rf"{file}: refused, because it contains '{name}'"):
            tree(tmp_path / file)


def test_an_archive_cut_between_two_files(tmp_path: Path) -> None:
    for name in "abc":
        put(tmp_path / "open" / name, bytes(512))
    published.tar(tmp_path / "open", tmp_path / "whole.tar")
    whole = (tmp_path / "whole.tar").read_bytes()
    with tarfile.open(tmp_path / "whole.tar") as archive:
        ends = [entry.offset_data + entry.size for entry in archive]
    for end in ends:
        (tmp_path / "cut.tar").write_bytes(whole[:end])
        with pytest.raises(DataError, match=r"cut\.tar: damaged or incomplete"):
            TarArchive(tmp_path / "cut.tar")


def test_the_same_name_twice(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("x"))
        tar.addfile(tarfile.TarInfo("x"))
    with pytest.raises(DataError, match=r"a\.tar: contains x more than once"):
        TarArchive(tmp_path / "a.tar")


def test_a_bit_turned_over_in_a_zip(tmp_path: Path) -> None:
    put(tmp_path / "open" / "x", bytes(range(256)))
    published.zipped(tmp_path / "open", tmp_path / "a.zip")
    change(bytes(range(256)), bytes(255) + b"\1")(tmp_path / "a.zip")
    with pytest.raises(DataError, match=r"a\.zip: x: damaged"):
        ZipArchive(tmp_path / "a.zip").read("x", limit=1000)


def test_several_copies(tmp_path: Path) -> None:
    published.mnist(tmp_path / "a")
    dataset = published.mnist(tmp_path / "b")
    with pytest.raises(DataError, match=r"several copies, .*a and .*b; keep only one"):
        dataset.read(tmp_path, NullOutput())


def test_hidden_folders_are_not_looked_into(tmp_path: Path) -> None:
    put(tmp_path / ".cache" / "x", b"")
    put(tmp_path / "y" / "z.gz", gzip.compress(b"z"))
    tree = Folder(tmp_path)
    assert list(tree.names) == ["y/z"]
    assert tree.read("y/z", limit=1000) == b"z"
