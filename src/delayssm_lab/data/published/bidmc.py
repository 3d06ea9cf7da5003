"""BIDMC: eight minutes of 53 patients, signals at 125 Hz and what the monitor showed each second.

Windows of 32 seconds begin every 3 seconds, 150 in each record. The target is the mean of the 32 numbers the monitor
showed meanwhile; seconds without a number do not count.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.errors import DataError
from delayssm_lab.data.published import wfdb
from delayssm_lab.data.published.dataset import DataSet, Download, Reading, text, verify

_RATE = 125
_LENGTH = 60_001
_SECONDS = 481
_WINDOW = 32
_STRIDE = 3
_WINDOWS = 150
_SIGNALS = ("PLETH", "II")
#: Columns of the monitor. In 79 windows, all of the 13th record, the mean of RR is 0: the sensor was off. They are kept
#: here; who learns RR leaves them out.
_TARGETS = {"HR": "HR", "RR": "RESP", "SpO2": "SpO2"}
_SUMS = "SHA256SUMS.txt"


@dataclass(frozen=True, kw_only=True)
class Bidmc(DataSet):
    """Arrays: signals float32 (53, 60001, 2), PPG and ECG lead II in physical units; and for each window
    record int16, start int32, the first of its 4000 samples, and HR, RR, SpO2 float64.

    about["records"] are the names of the records.
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
            checksum=None,  # the files inside have theirs
        ),
    )
    counts: Mapping[str, int] = field(default_factory=lambda: {"all": 53 * _WINDOWS})
    landmark: str = r"bidmc\d\d\.(hea|dat)"

    def _read(self, reading: Reading) -> dict[str, int]:
        numbers = range(1, self.counts["all"] // _WINDOWS + 1)
        wanted = {number: _files(number) for number in numbers}
        absent = [name for names in wanted.values() for name in names if name not in reading.tree.names]
        reading.lacks(absent)
        content = _verified(reading)
        here = [number for number in numbers if not set(wanted[number]) & set(absent)]
        signals = reading.out.array("signals", (len(here), _LENGTH, len(_SIGNALS)), np.float32)
        targets: dict[str, list[NDArray[np.float64]]] = {name: [] for name in _TARGETS}
        for row, number in enumerate(here):
            header, data, numerics = wanted[number]
            signals[row] = _signals(reading, header, data, content)
            for name, means in _means(reading.tree.where(numerics), content[numerics]).items():
                targets[name].append(means)
        for name, records in targets.items():
            reading.out.put(name, np.concatenate([np.empty(0), *records]))
        reading.out.put("record", np.repeat(np.arange(len(here), dtype=np.int16), _WINDOWS))
        reading.out.put("start", np.tile(np.arange(_WINDOWS, dtype=np.int32) * _STRIDE * _RATE, len(here)))
        reading.out.about(records=[f"bidmc{number:02d}" for number in here])
        return {"all": len(here) * _WINDOWS}


def _files(number: int) -> tuple[str, str, str]:
    return f"bidmc{number:02d}.hea", f"bidmc{number:02d}.dat", f"bidmc_csv/bidmc_{number:02d}_Numerics.csv"


def _verified(reading: Reading) -> dict[str, bytes]:
    """The files that are needed; all that are there and listed are compared with their checksums."""
    tree = reading.tree
    if _SUMS not in tree.names:
        raise DataError(f"{tree.where(_SUMS)}: the list of checksums is missing; get it again")
    lines = [line.split(maxsplit=1) for line in text(tree.where(_SUMS), tree.read(_SUMS)).splitlines()]
    if not all(len(line) == 2 for line in lines):
        raise DataError(f"{tree.where(_SUMS)}: not a checksum and a name in every line; get it again")
    sums = {name: checksum for checksum, name in lines if name in tree.names}
    needed = re.compile(r"bidmc\d\d\.(hea|dat)|bidmc_csv/bidmc_\d\d_Numerics\.csv")
    if unlisted := [name for name in tree.names if needed.fullmatch(name) and name not in sums]:
        raise DataError(f"{tree.where(_SUMS)}: no checksum of {unlisted[0]}; get it again")
    reading.total = len(sums)
    content = {}
    for name, found in tree.each(sums):
        verify(tree.where(name), found, f"sha256:{sums[name]}")
        if needed.fullmatch(name):
            content[name] = found
        reading.step()
    return content


def _signals(reading: Reading, header: str, data: str, content: Mapping[str, bytes]) -> NDArray[np.float64]:
    where = reading.tree.where(header)
    record = wfdb.header(where, text(where, content[header]))
    if (record.rate, record.length) != (_RATE, _LENGTH):
        raise DataError(f"{where}: {record.length:,} samples at {record.rate} Hz instead of {_LENGTH:,} at {_RATE}")
    physical = wfdb.signals(reading.tree.where(data), record, content[data])
    if absent := [name for name in _SIGNALS if name not in physical]:
        raise DataError(f"{where}: no signal {absent[0]}")
    return np.stack([physical[name] for name in _SIGNALS], axis=-1)


def _means(where: str, content: bytes) -> dict[str, NDArray[np.float64]]:
    """The targets of all windows of a record."""
    head, *rows = csv.reader(text(where, content).splitlines())
    columns = [name.strip() for name in head]
    if not set(_TARGETS.values()) <= set(columns) or {len(row) for row in rows} != {len(columns)}:
        raise DataError(f"{where}: not the columns Time [s], HR, PULSE, RESP, SpO2; get it again")
    if len(rows) != _SECONDS:
        raise DataError(f"{where}: {len(rows)} seconds instead of {_SECONDS}; get it again")
    try:
        values = np.array([[float(value) for value in row] for row in rows])
    except ValueError as error:
        raise DataError(f"{where}: {error}; get it again") from error
    # The clock of some records begins at -1; the first row belongs to the first second all the same.
    windows = np.lib.stride_tricks.sliding_window_view(values, _WINDOW, axis=0)[: _WINDOWS * _STRIDE : _STRIDE]
    if np.isnan(windows).all(axis=-1)[:, [columns.index(column) for column in _TARGETS.values()]].any():
        raise DataError(f"{where}: there are {_WINDOW} seconds without any number; get it again")
    return {name: np.nanmean(windows[:, columns.index(column)], axis=-1) for name, column in _TARGETS.items()}
