"""BIDMC: eight minutes from each of 53 patients, with signals at 125 Hz and the monitor's readings once per second.

Windows of 32 seconds begin every 3 seconds, 150 in each record. The target of a window is the mean of the monitor's 32
readings in it; missing readings are skipped.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published import wfdb
from delayssm_lab.data.published.dataset import DataSet, Download, ReadContext, decode_utf8, verify_checksum
from delayssm_lab.data.published.file_trees import FileTree

_RATE = 125
_LENGTH = 60_001
_SECONDS = 481
_WINDOW = 32
_STRIDE = 3
_WINDOWS = 150
_SIGNALS = ("PLETH", "II")
#: Columns of the monitor by target. In 79 windows, all in the 13th record, the mean of RR is 0, because the sensor was
#: off. They are stored, and the task that predicts RR leaves them out.
_TARGETS = {"HR": "HR", "RR": "RESP", "SpO2": "SpO2"}
_CHECKSUMS = "SHA256SUMS.txt"


@dataclass(frozen=True, kw_only=True)
class PublishedBidmc(DataSet):
    """Published files of BIDMC.

    Arrays: signals float32 (53, 60001, 2), PPG and ECG lead II in physical units. For each window: record int16,
    start int32 (index of the first of its 4000 samples), and HR, RR, SpO2 float64. about["records"] lists the names of
    the records.
    """

    name: str = "bidmc"
    title: str = "BIDMC PPG and Respiration 1.0.0"
    licence: str = "ODC-BY 1.0"
    page: str = "https://physionet.org/content/bidmc/1.0.0"
    size: int = 218_000_000
    downloads: tuple[Download, ...] = (
        Download(
            "bidmc-ppg-and-respiration-dataset-1.0.0.zip",
            "https://physionet.org/static/published-projects/bidmc/bidmc-ppg-and-respiration-dataset-1.0.0.zip",
            checksum=None,  # the archive contains the checksums of its files
        ),
    )
    counts: Mapping[str, int] = field(default_factory=lambda: {"all": 53 * _WINDOWS})
    file_pattern: str = r"bidmc\d\d\.(hea|dat)"

    def _read(self, context: ReadContext) -> dict[str, int]:
        tree, out = context.tree, context.out
        numbers = range(1, self.counts["all"] // _WINDOWS + 1)
        files = {number: _files(number) for number in numbers}
        missing = [name for names in files.values() for name in names if name not in tree.names]
        context.report_missing(missing)
        contents = _read_verified(context)
        complete = [number for number in numbers if not set(files[number]) & set(missing)]
        signals = out.array("signals", (len(complete), _LENGTH, len(_SIGNALS)), np.float32)
        targets: dict[str, list[NDArray[np.float64]]] = {name: [] for name in _TARGETS}
        for row, number in enumerate(complete):
            header, samples, numerics = files[number]
            signals[row] = _read_signals(tree, header, samples, contents)
            for name, means in _window_means(tree.path_of(numerics), contents[numerics]).items():
                targets[name].append(means)
        for name, records in targets.items():
            out.put(name, np.concatenate([np.empty(0), *records]))
        out.put("record", np.repeat(np.arange(len(complete), dtype=np.int16), _WINDOWS))
        out.put("start", np.tile(np.arange(_WINDOWS, dtype=np.int32) * _STRIDE * _RATE, len(complete)))
        out.about(records=[f"bidmc{number:02d}" for number in complete])
        return {"all": len(complete) * _WINDOWS}


def _files(number: int) -> tuple[str, str, str]:
    return f"bidmc{number:02d}.hea", f"bidmc{number:02d}.dat", f"bidmc_csv/bidmc_{number:02d}_Numerics.csv"


def _read_verified(context: ReadContext) -> dict[str, bytes]:
    """Verify the checksums of all listed files that are present, and return the contents of those that are needed."""
    tree, path = context.tree, context.tree.path_of(_CHECKSUMS)
    if _CHECKSUMS not in tree.names:
        raise DataError(f"{path}: the list of checksums is missing; download it again")
    text = decode_utf8(path, tree.read(_CHECKSUMS, limits.LIST_BYTES))
    lines = [line.split(maxsplit=1) for line in text.splitlines()]
    if not all(len(line) == 2 for line in lines):
        raise DataError(f"{path}: not a checksum and a name in every line; download it again")
    checksums = {name: checksum for checksum, name in lines if name in tree.names}
    needed = re.compile(r"bidmc\d\d\.(hea|dat)|bidmc_csv/bidmc_\d\d_Numerics\.csv")
    if unlisted := [name for name in tree.names if needed.fullmatch(name) and name not in checksums]:
        raise DataError(f"{path}: no checksum of {unlisted[0]}; download it again")
    context.total = len(checksums)
    contents = {}
    for name, content in tree.read_each(filter(needed.fullmatch, checksums), limits.RECORD_BYTES):
        verify_checksum(tree.path_of(name), [content], f"sha256:{checksums[name]}")
        contents[name] = content
        context.advance()
    others = [name for name in checksums if name not in contents]
    with closing(tree.open_each(others, limits.STREAM_BYTES)) as files:
        for name, file in files:
            pieces = iter(lambda file=file: file.read(limits.CHUNK), b"")  # type: ignore[misc]
            verify_checksum(tree.path_of(name), pieces, f"sha256:{checksums[name]}")
            context.advance()
    return contents


def _read_signals(tree: FileTree, header: str, samples: str, contents: Mapping[str, bytes]) -> NDArray[np.float64]:
    path = tree.path_of(header)
    record = wfdb.parse_header(path, decode_utf8(path, contents[header]))
    if (record.rate, record.length) != (_RATE, _LENGTH):
        raise DataError(
            f"{path}: {record.length:,} samples at {record.rate} Hz instead of {_LENGTH:,} at {_RATE}; "
            "download it again"
        )
    signals = wfdb.decode_signals(tree.path_of(samples), record, contents[samples])
    if missing := [name for name in _SIGNALS if name not in signals]:
        raise DataError(f"{path}: no signal {missing[0]}; download it again")
    return np.stack([signals[name] for name in _SIGNALS], axis=-1)


def _window_means(path: str, content: bytes) -> dict[str, NDArray[np.float64]]:
    """Return the targets of all windows of a record."""
    try:
        header, *rows = csv.reader(decode_utf8(path, content).splitlines(), strict=True)
    except (csv.Error, ValueError) as error:
        raise DataError(f"{path}: not a table ({error}); download it again") from error
    columns = [name.strip() for name in header]
    repeated = len(set(columns)) < len(columns)
    if repeated or not set(_TARGETS.values()) <= set(columns) or {len(row) for row in rows} != {len(columns)}:
        raise DataError(f"{path}: its columns are not Time [s], HR, PULSE, RESP, SpO2; download it again")
    if len(rows) != _SECONDS:
        raise DataError(f"{path}: {len(rows)} seconds instead of {_SECONDS}; download it again")
    try:
        values = np.array([[float(value) for value in row] for row in rows])
    except ValueError as error:
        raise DataError(f"{path}: {error}; download it again") from error
    if np.nanmax(np.abs(values), initial=0) > limits.READING:
        raise DataError(f"{path}: a reading is beyond the limit of {limits.READING:,.0f}; download it again")
    # The clock of some records begins at -1. The first row belongs to the first second nevertheless.
    windows = np.lib.stride_tricks.sliding_window_view(values, _WINDOW, axis=0)[: _WINDOWS * _STRIDE : _STRIDE]
    if np.isnan(windows).all(axis=-1)[:, [columns.index(column) for column in _TARGETS.values()]].any():
        raise DataError(f"{path}: {_WINDOW} seconds in a row have no reading; download it again")
    return {name: np.nanmean(windows[:, columns.index(column)], axis=-1) for name, column in _TARGETS.items()}
