"""Tiny files in the published layouts. Each function writes files and returns a data set that they make complete."""

import gzip
import hashlib
import io
import struct
import tarfile
import wave
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from delayssm_lab.data.published.aan import PublishedAan
from delayssm_lab.data.published.bidmc import PublishedBidmc
from delayssm_lab.data.published.cifar10 import PublishedCifar10
from delayssm_lab.data.published.dataset import DataSet
from delayssm_lab.data.published.imdb import PublishedImdb
from delayssm_lab.data.published.listops import PublishedListOps
from delayssm_lab.data.published.mnist import PublishedMnist
from delayssm_lab.data.published.pathfinder import published_pathfinder
from delayssm_lab.data.published.speech_commands import PublishedSpeechCommands

LISTS = {
    "train": ["( ( ( [MAX 4 ) ( ( [MIN 7 ) ] ) ) ] )", "( ( [SM 3 ) ] )"],
    "val": ["5"],
    "test": ["( ( [MED 0 ) ] )"],
}
VALUES = {"train": [7, 3], "val": [5], "test": [0]}


def mnist(folder: Path) -> DataSet:
    random, checksums = np.random.default_rng(0), {}
    for stem, count in (("train", 3), ("t10k", 2)):
        images = struct.pack(">4I", 0x803, count, 28, 28) + random.bytes(count * 784)
        labels = struct.pack(">2I", 0x801, count) + bytes(range(count))
        for name, content in ((f"{stem}-images-idx3-ubyte", images), (f"{stem}-labels-idx1-ubyte", labels)):
            put(folder / f"{name}.gz", gzip.compress(content))
            checksums[name] = "md5:" + hashlib.md5(content).hexdigest()
    return replace(PublishedMnist(), counts={"train": 3, "test": 2}, checksums=checksums)


def cifar10(folder: Path) -> DataSet:
    random = np.random.default_rng(0)
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        records = b"".join(bytes([label]) + random.bytes(3072) for label in (3, 9))
        put(folder / "cifar-10-batches-bin" / f"{name}.bin", records)
    return replace(PublishedCifar10(), counts={"train": 10, "test": 2})


def speech_commands(folder: Path) -> DataSet:
    for word in ("no", "yes"):
        for number in range(4):
            put(folder / word / f"00aa_nohash_{number}.wav", clip(np.full(100 + number, 10 * number, np.int16)))
    put(folder / "_background_noise_" / "hum.wav", clip(np.zeros(20_000, np.int16)))
    put(folder / "validation_list.txt", b"no/00aa_nohash_2.wav\nyes/00aa_nohash_2.wav\n")
    put(folder / "testing_list.txt", b"yes/00aa_nohash_3.wav\n")
    return replace(PublishedSpeechCommands(), counts={"train": 5, "validation": 2, "test": 1}, words=("no", "yes"))


def bidmc(folder: Path) -> DataSet:
    random = np.random.default_rng(0)
    for number in (1, 2):
        digital = random.integers(-3000, 3000, (60_001, 3)).astype("<i2")
        lines = [f"bidmc{number:02d} 3 125 60001"]
        for name, column in zip(("RESP", "PLETH", "II"), digital.T, strict=True):
            checksum = np.array(column.sum(dtype=np.int64)).astype(np.int16)
            lines.append(f"bidmc{number:02d}.dat 16 200.5(-7)/NU 0 0 {column[0]} {checksum} 0 {name}, ")
        put(folder / f"bidmc{number:02d}.hea", "\n".join([*lines, "#<age>: 88 "]).encode())
        put(folder / f"bidmc{number:02d}.dat", digital.tobytes())
        seconds = [f"{s},{90 + s % 3},90,{'NaN' if s == 4 else 20},{97 + number}" for s in range(481)]
        numerics = "\n".join(["Time [s], HR, PULSE, RESP, SpO2", *seconds])
        put(folder / "bidmc_csv" / f"bidmc_{number:02d}_Numerics.csv", numerics.encode())
    write_checksums(folder)
    return replace(PublishedBidmc(), counts={"all": 2 * 150})


def write_checksums(folder: Path) -> None:
    """Write the checksums of all files in the folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "SHA256SUMS.txt"]
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.relative_to(folder).as_posix()}" for path in files]
    put(folder / "SHA256SUMS.txt", "\n".join([*lines, f"{'0' * 64} bidmc_csv/bidmc_01_Signals.csv"]).encode())


def imdb(folder: Path) -> DataSet:
    for split in ("train", "test"):
        for name, review in (("neg/10_1", "bad"), ("neg/9_4", "Bad é" + "q" * 20), ("pos/0_10", "good" * 15)):
            put(folder / "aclImdb" / split / f"{name}.txt", review.encode())
    put(folder / "aclImdb" / "train" / "unsup" / "0_0.txt", b"ignored")
    return replace(PublishedImdb(), counts={"train": 3, "test": 3})


def listops(folder: Path) -> DataSet:
    for part, rows in LISTS.items():
        lines = ["Source\tTarget", *(f"{text}\t{value}" for text, value in zip(rows, VALUES[part], strict=True))]
        put(folder / "listops-1000" / f"basic_{part}.tsv", ("\n".join(lines) + "\n").encode())
    return replace(PublishedListOps(), counts={"train": 2, "validation": 1, "test": 1})


def aan(folder: Path) -> DataSet:
    for part in ("train", "eval", "test"):
        rows = '1.0\t7\t8\t"b\'one ""two""\'"\t' + "x" * 200_000 + "\n0.0\t7\t9\tb'one'\tb'\\xe9'\n"
        put(folder / "tsv_data" / f"new_aan_pairs.{part}.tsv", rows.encode())
    return replace(PublishedAan(), counts={"train": 2, "validation": 2, "test": 2})


def pathfinder32(folder: Path) -> DataSet:
    base = folder / "pathfinder32" / "curv_baseline"
    random = np.random.default_rng(0)
    for group in (0, 10, 9):
        lines = []
        for number in (172, 3):
            picture = io.BytesIO()
            Image.fromarray(random.integers(0, 256, (32, 32), np.uint8)).save(picture, "PNG")
            empty = (group, number) == (0, 172)
            put(base / "imgs" / str(group) / f"sample_{number}.png", b"" if empty else picture.getvalue())
            lines.append(f"imgs/{group} sample_{number}.png {number} {number % 2} 1.8 6 1")
        put(base / "metadata" / f"{group}.npy", "\n".join(lines).encode())
    return replace(published_pathfinder(32, 6), counts={"all": 5})


ALL: dict[str, Callable[[Path], DataSet]] = {
    function.__name__: function
    for function in (mnist, cifar10, speech_commands, bidmc, imdb, listops, aan, pathfinder32)
}


def put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def clip(samples: np.ndarray, rate: int = 16_000, channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as target:
        target.setnchannels(channels)
        target.setsampwidth(2)
        target.setframerate(rate)
        target.writeframes(samples.astype("<i2").tobytes())
    return file.getvalue()


def tar(folder: Path, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:gz" if archive.suffix == ".gz" else "w") as target:
        target.add(folder, ".")


def zipped(folder: Path, archive: Path) -> None:
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w") as target:
        for path in sorted(folder.rglob("*")):
            target.write(path, path.relative_to(folder).as_posix())
