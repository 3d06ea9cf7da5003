"""Studies of transforms and convolutions at toy size, and the limits of the machine beside them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from delayssm.backends.ring import Ring
from delayssm_lab.measure import transform_speed
from delayssm_lab.measure.convolution_accuracy import ConvolutionAccuracy
from delayssm_lab.measure.convolution_speed import ConvolutionSpeed
from delayssm_lab.measure.limits import Limits, show_limits
from delayssm_lab.measure.resources import fastest_in_turn
from delayssm_lab.measure.transform_speed import TransformSpeed, over_channels
from tests.support.studies import make, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

LIMITS = Limits(side=16, elements=64)


def test_limits_are_rates_and_leave_threads_as_they_were() -> None:
    torch.set_num_threads(2)
    values = LIMITS.measure()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    assert set(values) == {"GFLOPS", "GB/s", "GFLOPS, one thread", "GB/s, one thread"}
    assert all(value > 0 for value in values.values())


def test_limits_are_shown_once_measured() -> None:
    values = {"GFLOPS": 180.6, "GB/s": 33.4, "GFLOPS, one thread": 92.0, "GB/s, one thread": 25.2}
    text = "Limits of the machine in this run: dense products {}, memory {}.\n"
    on_cpu = text.format("181 GFLOPS (one thread 92)", "33 GB/s (one thread 25)")
    assert list(show_limits({LIMITS: values})) == [("limits.md", on_cpu.encode())]
    on_gpu = text.format("181 GFLOPS", "33 GB/s")
    assert list(show_limits({LIMITS: {"GFLOPS": 180.6, "GB/s": 33.4}})) == [("limits.md", on_gpu.encode())]
    assert list(show_limits({})) == []


def test_functions_take_turns() -> None:
    called: list[str] = []
    times = fastest_in_turn({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, 3)
    assert called == ["a", "b"] * 3
    assert set(times) == {"a", "b"}


@pytest.mark.usefixtures("in_process")
def test_transform_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transform_speed, "EFFORT", 1)
    study = TransformSpeed(sizes=(64, 512, 2048), limits=LIMITS)
    content = make(study, tmp_path)
    assert set(content) == {"table.md", "limits.md", "points.json", "about.json"}
    _, *values = (entry["values"] for entry in json.loads(content["points.json"]))
    rows = table_rows(content["table.md"])[2:]
    assert [row[:3] for row in rows] == [
        ["64", "64, the smallest there is", "2,048"],
        ["512", "256", "256"],
        ["2,048", "1,024", "256"],
    ]
    ours, theirs = values[1]["this library"], values[1]["torch.fft"]
    flops = 2.5 * 512 * 9
    assert rows[1][3:] == [
        *(f"{time / 256 * 1e9:,.0f}" for time in (ours, theirs)),
        f"{theirs / ours:.1f}",
        *(f"{flops / (time / 256) / 1e9:.0f}" for time in (ours, theirs)),
    ]


@pytest.mark.parametrize("length", [32, 64, 256])
def test_the_measured_transform_is_the_transform(length: int) -> None:
    signals = torch.randn(32, length)
    points, transform = over_channels(signals)
    assert points == max(64, length)
    spectra = transform().transpose(1, 2)  # (blocks, 2, m, lanes)
    values = torch.complex(spectra[:, 0], spectra[:, 1]).transpose(1, 2).flatten(0, 1)  # (rows, m)
    at = np.exp(2j * np.pi * Ring.at_least(length).angles)
    truth = np.polynomial.polynomial.polyval(at, signals.numpy().T.astype(np.float64))
    np.testing.assert_allclose(values.numpy(), truth, atol=1e-4)


@pytest.mark.usefixtures("in_process")
def test_convolution_speed(tmp_path: Path) -> None:
    study = ConvolutionSpeed(shapes=((2, 48, 16), (3, 32, 21)), rounds=2, limits=LIMITS)
    content = make(study, tmp_path)
    assert set(content) == {"table.md", "limits.md", "points.json", "about.json"}
    _, _, values = (entry["values"] for entry in json.loads(content["points.json"]))
    rows = table_rows(content["table.md"])[2:]
    assert [row[:3] for row in rows] == [
        [shape, width, direction]
        for shape, width in (("2 x 48", "16"), ("3 x 32", "21"))
        for direction in ("forward", "backward")
    ]
    ours, theirs = values["this library, backward"], values["torch.fft, backward"]
    read_and_written = 3 * 4 * 3 * 32 * 21
    assert rows[3][3:] == [
        *(f"{time * 1e3:.1f}" for time in (ours, theirs)),
        f"{theirs / ours:.1f}",
        f"{read_and_written / ours / 1e9:.1f}",
    ]


def test_convolution_accuracy(tmp_path: Path) -> None:
    content = make(ConvolutionAccuracy(lengths=(64, 200)), tmp_path)
    assert set(content) == {"table.md", "points.json", "about.json"}
    values = [entry["values"] for entry in json.loads(content["points.json"])]
    head, _, *rows = table_rows(content["table.md"])
    assert [row[0] for row in rows] == ["64", "200"]
    assert rows[1][1:] == [f"{values[1][column]:.1e}" for column in head[1:]]
    assert all(1e-9 < float(cell) < 1e-6 for row in rows for cell in row[1:])
