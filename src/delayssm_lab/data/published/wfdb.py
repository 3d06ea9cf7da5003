"""Records in PhysioNet's WFDB format: a text header (.hea) and interleaved 16-bit samples (.dat).

bidmc01 5 125 60001                                              name, signals, rate, samples
bidmc01.dat 16 138229.4494(-63710)/NU 0 0 -3446 29272 0 PLETH,   file, format, gain(baseline)/unit, resolution,
                                                                 zero, first value, checksum, block size, name
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delayssm_lab.data import limits
from delayssm_lab.data.errors import DataError

_FORMAT = "16"
_MISSING = -(2**15)
_GAIN = re.compile(r"(?P<gain>[\d.]+(?:[eE][+-]?\d+)?)(?:\((?P<baseline>-?\d+)\))?(?:/\S+)?")


@dataclass(frozen=True)
class Signal:
    """Description of a signal: physical value = (digital value - baseline) / gain."""

    name: str
    gain: float
    baseline: int
    first: int
    checksum: int


@dataclass(frozen=True)
class Record:
    """Content of a header."""

    rate: float
    length: int
    signals: tuple[Signal, ...]


def parse_header(path: str, text: str) -> Record:
    """Parse the text of a header."""
    lines = [line.strip() for line in text.splitlines()]
    first, *rest = [line for line in lines if line and not line.startswith("#")] or [""]
    try:
        _, count, rate, length, *_ = first.split()
        signals = tuple(_parse_signal(line) for line in rest)
        record = Record(float(rate.split("/")[0]), int(length), signals)
        expected = int(count)
    except ValueError as error:
        raise DataError(f"{path}: not a header of a record ({error}); download it again") from error
    if len({signal.name for signal in signals}) < len(signals):
        raise DataError(f"{path}: describes a signal more than once; download it again")
    if len(signals) != expected:
        raise DataError(f"{path}: describes {len(signals)} signals instead of {count}; download it again")
    return record


def decode_signals(path: str, record: Record, content: bytes) -> dict[str, NDArray[np.float64]]:
    """Return all signals by name, in physical units, with NaN for missing samples."""
    width = len(record.signals)
    if len(content) != 2 * record.length * width:
        raise DataError(f"{path}: {len(content):,} bytes instead of {2 * record.length * width:,}; download it again")
    digital = np.frombuffer(content, "<i2").reshape(record.length, width)
    physical = {}
    for signal, values in zip(record.signals, digital.T, strict=True):
        total = int(values.sum(dtype=np.int64))
        if (total - signal.checksum) % 2**16 or values[0] != signal.first:
            raise DataError(f"{path}: the checksum of {signal.name} differs from its header; download it again")
        scaled = (values.astype(np.float64) - signal.baseline) / signal.gain
        physical[signal.name] = np.where(values == _MISSING, np.nan, scaled)
    return physical


def _parse_signal(line: str) -> Signal:
    _, storage, scale, _, zero, first, checksum, _, *name = line.split(maxsplit=8)
    match = _GAIN.fullmatch(scale)
    if storage != _FORMAT or match is None:
        raise ValueError(f"{storage} {scale} is not format {_FORMAT} with a gain")
    gain, baseline = float(match["gain"]), int(match["baseline"] or zero)
    if not limits.GAIN_LOWEST <= gain <= limits.GAIN_HIGHEST or abs(baseline) > limits.BASELINE:
        raise ValueError(f"the gain {gain} or the baseline {baseline} is out of range")
    return Signal(" ".join(name).strip(" ,"), gain, baseline, int(first), int(checksum))
