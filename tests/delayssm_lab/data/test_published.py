"""Published files become the expected arrays. Incomplete data sets are refused with a list of what is missing."""

import gzip
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delayssm_lab.data.catalogue import datasets, find, load
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.generate.pathfinder import LEVELS
from delayssm_lab.data.prepared.reader import Prepared
from delayssm_lab.data.prepared.writer import NullOutput, Writer
from delayssm_lab.data.published import listops
from delayssm_lab.data.published.characters import CharacterCounter, CharacterEncoder
from delayssm_lab.data.published.cifar10 import gray
from delayssm_lab.data.published.dataset import DataSet
from tests.support import published

Make = Callable[[Path], DataSet]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DELAYSSM_DATA", str(tmp_path / "prepared"))


def prepare(dataset: DataSet, root: Path, partial: bool = False) -> Prepared:
    with Writer(dataset.name) as writer:
        dataset.read(root, writer, partial)
    return load(dataset.name)


def pieces(prepared: Prepared, name: str) -> list[np.ndarray]:
    return np.split(prepared[name], prepared[f"{name}_offsets"][1:-1])


@pytest.mark.parametrize("make", published.ALL.values(), ids=published.ALL.keys())
def test_folders_and_archives_give_the_same(make: Make, tmp_path: Path) -> None:
    dataset = make(tmp_path / "open")
    found = prepare(dataset, tmp_path / "open")
    assert found.about["counts"] == dataset.counts
    assert found.about["missing"] == []
    assert found.about["origin"] == "published"
    published.tar(tmp_path / "open", tmp_path / "packed" / dataset.name.replace("-", "_") / "any.tar.gz")
    published.tar(tmp_path / "open", tmp_path / "flat" / "release.tar")
    published.tar(tmp_path / "open", tmp_path / "release" / dataset.folder / "release.gz")
    published.zipped(tmp_path / "open", tmp_path / "zipped" / dataset.name / "any.zip")
    for place in ("packed", "flat", "release", "zipped"):
        steps: list[tuple[int, int]] = []
        assert dataset.read(tmp_path / place, NullOutput(), on_progress=lambda *step: steps.append(step)) == []  # noqa: B023
        assert steps[-1][0] == steps[-1][1]
        assert prepare(dataset, tmp_path / place).about["digest"] == found.about["digest"]


@pytest.mark.parametrize("make", published.ALL.values(), ids=published.ALL.keys())
@pytest.mark.parametrize("name", ["cut.tar", "cut.tar.gz", "cut.zip"])
def test_half_an_archive(make: Make, name: str, tmp_path: Path) -> None:
    dataset, archive = make(tmp_path / "open"), tmp_path / "place" / name
    (published.zipped if name == "cut.zip" else published.tar)(tmp_path / "open", archive)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(DataError, match=f"{re.escape(str(archive))}.*download it again"):
        dataset.read(tmp_path / "place", NullOutput(), partial=True)


@pytest.mark.parametrize("make", published.ALL.values(), ids=published.ALL.keys())
def test_a_part_must_be_asked_for(make: Make, tmp_path: Path) -> None:
    whole = make(tmp_path / "open")
    dataset = replace(whole, counts={split: 2 * count for split, count in whole.counts.items()})
    with pytest.raises(DataError, match=r"open.*: incomplete, without .*--partial"):
        prepare(dataset, tmp_path / "open")
    found = prepare(dataset, tmp_path / "open", partial=True)
    assert found.about["counts"] == whole.counts
    for split, count in whole.counts.items():
        assert f"{count:,} of {2 * count:,} samples for {split}" in found.about["missing"]


@pytest.mark.parametrize("name", sorted(published.ALL.keys() - {"bidmc"}))  # reads only the expected number of records
def test_more_than_published(name: str, tmp_path: Path) -> None:
    whole = published.ALL[name](tmp_path)
    with pytest.raises(DataError, match=r"more than the 0 published"):
        replace(whole, counts=dict.fromkeys(whole.counts, 0)).read(tmp_path, NullOutput(), partial=True)


def test_nothing_there(tmp_path: Path) -> None:
    for dataset in [dataset for dataset in datasets() if dataset.downloads]:
        with pytest.raises(
            DataError, match=f"no files of {dataset.name} below .*--download.*{dataset.downloads[0].file}"
        ):
            dataset.read(tmp_path, NullOutput())
        assert dataset.missing_downloads(tmp_path) == list(dataset.downloads)
    with pytest.raises(DataError, match="pathfinder20-3 is not published; run: delayssm data generate"):
        find("pathfinder20-3").read(tmp_path, NullOutput())


def test_the_catalogue() -> None:
    assert find("pathfinder128-14").counts == {"all": 200_000}
    assert find("pathfinder32-6").counts == {"all": 199_999}
    assert [d.name for d in datasets() if d.can_generate] == ["listops", "aan"] + [
        f"pathfinder{size}-{length}" for size, length in LEVELS
    ]
    with pytest.raises(DataError, match=r"no data set 'nist'; choose one of mnist, cifar10"):
        find("nist")


def test_mnist_in_files_that_are_not_compressed(tmp_path: Path) -> None:
    dataset = published.mnist(tmp_path / "a")
    for path in (tmp_path / "a").iterdir():
        published.put(tmp_path / "b" / "raw" / path.stem, gzip.decompress(path.read_bytes()))
    assert prepare(dataset, tmp_path / "a").about["digest"] == prepare(dataset, tmp_path / "b").about["digest"]
    assert load("mnist")["train_x"].shape == (3, 784)
    assert load("mnist")["test_y"].tolist() == [0, 1]
    assert load("mnist")["train_x"].dtype == load("mnist")["train_y"].dtype == np.uint8


def test_only_the_missing_file_is_needed(tmp_path: Path) -> None:
    dataset = published.mnist(tmp_path)
    assert dataset.missing_downloads(tmp_path) == []
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    assert [download.file for download in dataset.missing_downloads(tmp_path)] == ["t10k-labels-idx1-ubyte.gz"]
    found = prepare(dataset, tmp_path, partial=True)
    assert found.about["missing"] == ["t10k-labels-idx1-ubyte", "2 of 2 samples for test"]
    assert set(found) == {"train_x", "train_y"}


def test_gray_is_that_of_image_libraries() -> None:
    from PIL import Image

    colours = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    expected = np.asarray(Image.fromarray(colours).convert("L"))
    assert np.array_equal(gray(*np.moveaxis(colours, -1, 0)), expected)


def test_cifar10(tmp_path: Path) -> None:
    dataset = published.cifar10(tmp_path)
    batch = np.frombuffer((tmp_path / "cifar-10-batches-bin" / "data_batch_2.bin").read_bytes(), np.uint8)
    red, green, blue = batch[3074:].reshape(3, 1024)
    found = prepare(dataset, tmp_path)
    assert np.array_equal(found["train_x"][3], gray(red, green, blue))
    assert found["train_y"].tolist() == [3, 9] * 5


def test_speech_commands(tmp_path: Path) -> None:
    found = prepare(published.speech_commands(tmp_path), tmp_path)
    assert found.about["words"] == ["no", "yes"]
    assert found["train_length"].tolist() == [100, 101, 103, 100, 101]
    assert found["train_y"].tolist() == [0, 0, 0, 1, 1]
    assert found["validation_y"].tolist() == [0, 1]
    assert found["test_x"].shape == (1, 16_000)
    assert found["test_x"].dtype == np.int16
    assert found["test_x"][0, 102] == 30
    assert not found["test_x"][0, 103:].any()
    assert found.about["mean"] == pytest.approx(found["train_x"].mean(), rel=1e-12)
    assert found.about["std"] == pytest.approx(found["train_x"].std(), rel=1e-12)


def test_bidmc(tmp_path: Path) -> None:
    found = prepare(published.bidmc(tmp_path), tmp_path)
    assert found["signals"].shape == (2, 60_001, 2)
    digital = np.frombuffer((tmp_path / "bidmc02.dat").read_bytes(), "<i2").reshape(-1, 3)
    assert np.array_equal(found["signals"][1], ((digital[:, 1:] + 7.0) / 200.5).astype(np.float32))
    assert found["record"].tolist() == [0] * 150 + [1] * 150
    assert found["start"][:3].tolist() == [0, 375, 750]
    assert found["start"].max() + 4000 <= 60_001
    assert found["HR"][0] == np.mean([90 + s % 3 for s in range(32)])
    assert found["RR"][0] == 20  # the missing reading is skipped
    assert found["SpO2"][[0, -1]].tolist() == [98, 99]


def test_imdb(tmp_path: Path) -> None:
    found = prepare(published.imdb(tmp_path), tmp_path)
    characters = found.about["characters"]
    assert characters == ["<pad>", "<unk>", "<eos>", "d", "g", "o", "q"]
    read = ["".join(characters[token] for token in piece) for piece in pieces(found, "train_tokens")]
    assert read == ["<unk><unk>d<unk><unk>" + "q" * 20, "<unk><unk>d", "good" * 15]  # ordered by number: 9 before 10
    texts = [piece.tobytes() for piece in pieces(found, "train_bytes")]
    assert texts == ["Bad é".encode() + b"q" * 20, b"bad", b"good" * 15]
    assert found["train_y"].tolist() == [0, 0, 1]


@given(st.lists(st.text(max_size=30), max_size=5))
def test_characters_come_back(texts: list[str]) -> None:
    texts = [text.encode(errors="ignore").decode() for text in texts]
    counter = CharacterCounter(head=30, source="test")
    for text in texts * 15:
        counter.add(text)
    tokens = counter.vocabulary()
    assert tokens[3:] == sorted(set("".join(texts)))
    assert ["".join(tokens[token] for token in CharacterEncoder(tokens)(text)) for text in texts] == texts


def test_only_the_head_is_counted() -> None:
    counter = CharacterCounter(head=20, source="test")
    counter.add("a" * 20 + "b" * 20)
    assert counter.vocabulary() == ["<pad>", "<unk>", "<eos>", "a"]


def test_listops(tmp_path: Path) -> None:
    found = prepare(published.listops(tmp_path), tmp_path)
    tokens = found.about["tokens"]
    read = [" ".join(tokens[token] for token in piece) for piece in pieces(found, "train_tokens")]
    assert read == ["[MAX 4 [MIN 7 X X", "[SM 3 X"]
    assert found["train_y"].tolist() == [7, 3]
    with Writer("listops") as writer:
        splits = {"train": list(zip(published.LISTS["train"], [7, 3], strict=True))}
        assert listops.write_expressions(writer, splits) == {"train": 2}
        writer.about(title="", origin="made here", missing=[], counts={"train": 2})
    assert np.array_equal(load("listops")["train_tokens"], found["train_tokens"])


def test_aan(tmp_path: Path) -> None:
    found = prepare(published.aan(tmp_path), tmp_path)
    assert found["validation_y"].tolist() == [1, 0]
    assert [len(piece) for piece in pieces(found, "test_a_tokens")] == [len("b'one \"two\"'"), len("b'one'")]
    assert [len(piece) for piece in pieces(found, "test_b_tokens")] == [200_000, len(r"b'\xe9'")]
    assert found.about["characters"] == ["<pad>", "<unk>", "<eos>", "x"]


def test_pathfinder(tmp_path: Path) -> None:
    from PIL import Image

    found = prepare(published.pathfinder32(tmp_path), tmp_path)
    folder = tmp_path / "pathfinder32" / "curv_baseline" / "imgs"
    order = ["0/sample_3", "9/sample_172", "9/sample_3", "10/sample_172", "10/sample_3"]  # without the empty one
    expected = [np.asarray(Image.open(folder / f"{name}.png")).reshape(-1) for name in order]
    assert np.array_equal(found["x"], expected)
    assert found["y"].tolist() == [1, 0, 1, 0, 1]
