"""The study of echo paths: its signals, the normalised LMS filter, and what finds a path."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from delayssm.layers.diagonal_ssm import DiagonalSSM
from delayssm_lab.data.generate.echoes import EchoPath, convolved, record, speech_like
from delayssm_lab.studies.equations.echo import METHODS, Cancelling, EchoPaths
from delayssm_lab.studies.equations.nlms import adapt
from delayssm_lab.study import Places, Readings
from tests.support.studies import make, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

TOY = EchoPaths(
    nears=(-20.0, 0.0), paths=1, taps=64, echoes=2, signals=2, length=512, filter_passes=2, epochs=4, channels=4,
    states=2, rates=(1e-2,), step_sizes=((0.1, 2.0), (1e-3, 0.1)), filter_rates=(0.2,),
)  # fmt: skip


def test_signals_are_coloured_and_modulated() -> None:
    x = speech_like(20, 4096, np.random.default_rng(0))
    assert x.std() == pytest.approx(1)
    power = np.square(np.abs(np.fft.rfft(x))).mean(0)
    assert power[20:200].mean() > 30 * power[1500:].mean()
    loudness = np.square(x).reshape(20, -1, 256).mean(2)
    assert loudness.std() > 0.5 * loudness.mean()


def test_a_response_is_a_window_around_each_delay() -> None:
    response = EchoPath((10, 30), (2.0, -1.0), (1, 2)).response(40)
    assert response[9:12] == pytest.approx([0.5, 1.0, 0.5])
    assert response[28:33].sum() == pytest.approx(-1)
    assert np.count_nonzero(response) == 8
    path = EchoPath.draw(5, 200, seed=3)
    assert path == EchoPath.draw(5, 200, seed=3) != EchoPath.draw(5, 200, seed=4)
    assert np.abs(path.response(200)).sum() == pytest.approx(np.abs(path.gains).sum(), rel=0.5)


def test_a_recording_is_an_echo_and_a_near_end() -> None:
    path = EchoPath((10, 30), (1.0, -0.5), (1, 2))
    played, heard, echo = record(path, -20.0, 3, 500, np.random.default_rng(0))
    for x, y in zip(played, echo, strict=True):
        assert np.abs(np.convolve(x, path.response(40))[:500] - y).max() < 1e-9
    assert (heard - echo).std() == pytest.approx(0.1 * echo.std(), rel=1e-6)


def test_a_step_of_the_filter_is_its_equation() -> None:
    x, y, weights = np.array([[2.0, -1.0]]), np.array([[1.0, 3.0]]), np.array([0.5, 0.25])
    first = weights + 0.3 * (1 - 0.5 * 2) / (4 + 2e-3) * np.array([2.0, 0.0])
    u = np.array([-1.0, 2.0])
    second = first + 0.3 * (3 - first @ u) / (5 + 2e-3) * u
    assert np.abs(adapt(weights, x, y, 0.3) - second).max() < 1e-12


def test_the_filter_finds_a_response() -> None:
    random = np.random.default_rng(0)
    x, response = random.normal(size=(4, 500)), random.normal(size=8)
    assert np.abs(adapt(np.zeros(8), x, convolved(x, response), 0.5) - response).max() < 1e-3
    with pytest.raises(ValueError, match="rate must lie between 0 and 2"):
        adapt(np.zeros(8), x, x, 2.0)


def _one(method: str, **sizes: object) -> Readings:
    point = next(point for point in TOY.points() if point.method == method)
    return TOY.measure(replace(point, **sizes), Places())


def test_delays_that_are_suggested_are_those_of_the_echoes() -> None:
    """A system with few parameters finds a path, with its delays where the echoes are."""
    sizes = {"taps": 100, "length": 512, "signals": 8, "epochs": 150, "channels": 8, "states": 4, "rates": (3e-2,)}
    found = _one("DelaySSM, suggested delays", **sizes)
    assert found["found"] == 1
    assert found["enhancement"] > 10
    assert found["distance"] < -5


def test_every_system_has_the_same_trials() -> None:
    """They include step sizes with which a system without delays reaches the last echo."""
    systems = [point for point in EchoPaths().points() if "NLMS" not in point.method]
    assert len({(point.rates, point.step_sizes, point.epochs) for point in systems}) == 1
    assert len({point.method for point in systems}) == 3
    reach = [
        float(DiagonalSSM(16, 4, dt_min=low, dt_max=high).kernel(1024)[:, 900:].detach().abs().max())
        for low, high in systems[0].step_sizes
    ]
    assert reach[0] < 1e-6
    assert reach[-1] > 1e-4


def test_step_sizes_are_chosen() -> None:
    sizes = {"taps": 400, "length": 800, "echoes": 1, "path": 1, "epochs": 40, "rates": (1e-1,), "channels": 8}
    found = _one("DiagonalSSM", **sizes)
    ranges = [_one("DiagonalSSM", **sizes, step_sizes=(step_sizes,)) for step_sizes in TOY.step_sizes]
    assert found in ranges
    assert (found["smallest step size"], found["largest step size"]) in TOY.step_sizes


def test_an_echo_beyond_the_reach_of_a_short_filter_stays() -> None:
    sizes = {"taps": 400, "length": 800, "echoes": 1, "path": 1}
    delay = EchoPath.draw(1, 400, 1).delays[0]
    assert _one("short NLMS", **sizes)["parameters"] < delay
    assert _one("short NLMS", **sizes)["enhancement"] < 1
    assert _one("NLMS", **sizes)["enhancement"] > 5


def test_toy_study(tmp_path: Path) -> None:
    content = make(TOY, tmp_path)
    assert set(content) == {"table.md", "echo-path.png", "points.jsonl", "about.json"}
    head, _, *rows = table_rows(content["table.md"])
    assert [row[0] for row in rows] == list(METHODS)
    assert head[2:4] == ["near end -20 dB: ERLE, dB", "near end +0 dB: ERLE, dB"]


def test_partial_results_are_readable() -> None:
    everything = TOY.points()
    results: dict[Cancelling, Readings] = {point: TOY.measure(point, Places()) for point in everything[1:2]}
    assert [name for name, _ in TOY.show(results)] == ["table.md", "echo-path.png"]
