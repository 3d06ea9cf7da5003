"""The Mackey-Glass study: its series are those of the protocol, and its contenders are what they are called."""

from pathlib import Path

import numpy as np
import pytest

from delayssm.estimators import DelayForecaster
from delayssm_lab.data.generate.mackey_glass import mackey_glass
from delayssm_lab.pretrained import directory
from delayssm_lab.studies.equations.linear import Autoregression
from delayssm_lab.studies.forecasting import Forecasting
from tests.support.studies import make, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")


def test_series_solve_the_equation() -> None:
    """Steps of a tenth, from a past of 170 values and the last value of the series before."""
    random = np.random.RandomState(3)
    x, rows = 1.2, []
    for _ in range(2):
        values = [*(1.2 + 0.2 * (random.rand(170) - 0.5)), x]
        for n in range(170, 170 + 10 * 60):
            delayed = values[n - 170]
            values.append(values[n] + 0.1 * (0.2 * delayed / (1 + delayed**10) - 0.1 * values[n]))
        x = values[-1]
        rows.append(np.tanh(np.array(values[180::10]) - 1)[20:])
    expected = np.array(rows) - np.mean(rows)
    assert np.abs(mackey_glass(2, 40, washout=20, seed=3) - expected).max() < 1e-12


def test_the_protocol_is_the_published_one() -> None:
    """Repeating the last value has the published error, 162.4 %, and no series is like another."""
    study = Forecasting()
    data = mackey_glass(study.series, study.length + study.ahead)
    tested = data[study.series // 2 :]
    assert tested.shape == (64, 5015)
    assert round(study.protocol.error(tested, tested[:, : -study.ahead]), 1) == 162.4
    assert abs(data.mean()) < 1e-12


def test_autoregression_is_least_squares() -> None:
    """Over all rows of all training series at once: a one, the last three values, and the value five steps ahead."""
    random = np.random.default_rng(0)
    trained, others = random.normal(size=(3, 40)).cumsum(1), random.normal(size=(2, 30)).cumsum(1)

    def rows(values: np.ndarray) -> list[list[float]]:
        padded = [0.0, 0.0, *values]
        return [[1.0, *padded[t : t + 3]] for t in range(len(values) - 5)]

    past = np.concatenate([rows(values) for values in trained])
    weights = np.linalg.lstsq(past, trained[:, 5:].reshape(-1))[0]
    expected = [rows(values) @ weights for values in others]
    model = Autoregression.fit(trained, taps=3, ahead=5)
    assert np.abs(model.forecast(others[:, :-5]) - expected).max() < 1e-9


def test_toy_study(tmp_path: Path) -> None:
    study = Forecasting(series=8, length=60, epochs=2, seeds=2, taps=(2, 4))
    content = make(study, tmp_path)
    assert set(content) == {"table.md", "points.jsonl", "about.json"}
    head, _, *rows = table_rows(content["table.md"])
    assert head == ["model", "parameters", "validation error, %", "test error, %"]
    names = [row[0].split(",")[0] for row in rows]
    assert sorted(names) == ["DelayForecaster", "LMU", "LMU and LSTM layers", "LSTM", "autoregression", "last value"]
    errors = [float(row[-1].split()[0]) for row in rows]
    assert errors == sorted(errors, reverse=True)
    saved = tmp_path / "work" / "mackey-glass" / "seed-1"
    assert "delayssm reproduce forecasting" in (saved / "README.md").read_text()
    assert DelayForecaster.load(saved).random_state == 1


def test_the_model_in_the_package_forecasts() -> None:
    """On series that it has never seen it is far better than the last value, and worst where they begin."""
    folder = directory("mackey-glass")
    assert sum(path.stat().st_size for path in folder.iterdir()) < 2_000_000
    forecaster = DelayForecaster.load(folder)
    study, series = Forecasting(), mackey_glass(8, 1015, seed=99)
    forecasts = np.array(forecaster.historical_forecasts(list(series)))[:, : -study.ahead, 0]
    assert study.protocol.error(series, forecasts) < 10
    squares = np.square(forecasts - series[:, study.ahead :]).sum(0)
    assert squares[:20].sum() > 0.5 * squares.sum()
    forecaster.begin(list(series[:, :900])).update(list(series[:, 900:]))
    assert np.abs(forecaster.predict() - forecaster.predict(list(series))).max() < 1e-4
