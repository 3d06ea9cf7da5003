"""Records of PhysioNet's WFDB: a header of text (.hea), and samples of 16 bits, one signal beside the other (.dat).

bidmc01 5 125 60001                                              name, signals, rate, samples
bidmc01.dat 16 138229.4494(-63710)/NU 0 0 -3446 29272 0 PLETH,   file, format, gain(baseline)/unit, resolution,
                                                                 zero, first value, checksum, block size, name
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data.errors import DataError

_FORMAT = "16"
_MISSING = -(2**15)
_GAIN = re.compile(r"(?P<gain>[\d.]+(?:[eE][+-]?\d+)?)(?:\((?P<baseline>-?\d+)\))?(?:/\S+)?")


@dataclass(frozen=True)
class Signal:
    """One signal; physical value = (digital - baseline) / gain."""

    name: str
    gain: float
    baseline: int
    first: int
    checksum: int


@dataclass(frozen=True)
class Record:
    """What a header says."""

    rate: float
    length: int
    signals: tuple[Signal, ...]


def header(where: str, text: str) -> Record:
    """Read a header."""
    lines = [line.strip() for line in text.splitlines()]
    first, *rest = [line for line in lines if line and not line.startswith("#")] or [""]
    try:
        _, count, rate, length, *_ = first.split()
        signals = tuple(_signal(line) for line in rest)
        record = Record(float(rate.split("/")[0]), int(length), signals)
    except ValueError as error:
        raise DataError(f"{where}: no header of a record ({error}); get it again") from error
    if len(signals) != int(count):
        raise DataError(f"{where}: describes {len(signals)} signals, but says {count}; get it again")
    return record


def signals(where: str, record: Record, content: bytes) -> dict[str, NDArray[np.float64]]:
    """All signals in physical units, by name."""
    width = len(record.signals)
    if len(content) != 2 * record.length * width:
        raise DataError(f"{where}: {len(content):,} bytes instead of {2 * record.length * width:,}; get it again")
    digital = np.frombuffer(content, "<i2").reshape(record.length, width)
    found = {}
    for signal, values in zip(record.signals, digital.T, strict=True):
        total = int(values.sum(dtype=np.int64))
        if (total - signal.checksum) % 2**16 or values[0] != signal.first:
            raise DataError(f"{where}: the checksum of {signal.name} is not that of its header; get it again")
        physical = (values.astype(np.float64) - signal.baseline) / signal.gain
        found[signal.name] = np.where(values == _MISSING, np.nan, physical)
    return found


def _signal(line: str) -> Signal:
    _, form, scale, _, zero, first, checksum, _, *name = line.split(maxsplit=8)
    match = _GAIN.fullmatch(scale)
    if form != _FORMAT or match is None:
        raise ValueError(f"{form} {scale} is not format {_FORMAT} with a gain")
    baseline = match["baseline"] or zero
    return Signal(" ".join(name).strip(" ,"), float(match["gain"]), int(baseline), int(first), int(checksum))
