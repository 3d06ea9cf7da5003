"""Forecasts: learned, arranged like their series, and the same in one pass and value by value."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.model_selection import TimeSeriesSplit, cross_val_score

from delayssm.estimators import DelayForecaster

pytestmark = pytest.mark.usefixtures("one_thread")

Array = NDArray[np.float64]
TINY: dict[str, Any] = {"d_model": 8, "d_state": 4, "depth": 1, "max_epochs": 2, "random_state": 0}
SMALL: dict[str, Any] = {"d_model": 16, "d_state": 8, "depth": 1, "learning_rate": 1e-2, "random_state": 0}


def _waves(length: int, channels: int, seed: int = 0) -> Array:
    phases = np.random.default_rng(seed).uniform(0, 6, channels)
    return 20 + 3 * np.sin(np.arange(length)[:, None] / 4 + phases)


def _noise(length: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=length)


def test_three_lines_from_an_array_to_a_forecast() -> None:
    series = _waves(312, 1)[:, 0]
    forecaster = DelayForecaster(horizon=12, max_epochs=150, **SMALL).fit(series[:300])
    forecast = forecaster.predict(series[:300])
    assert forecast.shape == (12,)
    assert np.abs(forecast - series[300:]).max() < 0.5  # of waves with amplitude 3 around 20
    assert forecaster.score(series) > 0.97


SERIES = {
    "one": (_waves(40, 1)[:, 0], (3,)),
    "channels": (_waves(40, 2), (3, 2)),
    "array": (np.stack([_waves(40, 2, seed) for seed in range(4)]), (4, 3, 2)),
    "list": ([_waves(length, 1)[:, 0] for length in (40, 25, 31)], (3, 3)),
    "list of channels": ([_waves(length, 2) for length in (40, 25, 31)], (3, 3, 2)),
}


@pytest.mark.parametrize("kind", SERIES)
def test_forecasts_are_arranged_like_series(kind: str) -> None:
    series, shape = SERIES[kind]
    forecaster = DelayForecaster(3, quantiles=(0.1, 0.5, 0.9), **TINY).fit(series)
    forecast = forecaster.predict(series)
    assert forecast.shape == shape
    assert forecaster.predict_quantiles(series).shape == (3, *shape)
    assert np.array_equal(forecaster.predict_quantiles(series)[1], forecast)
    low, high = forecaster.predict_interval(series, coverage=0.8)
    assert bool((low < forecast).all())
    assert bool((forecast < high).all())
    past = forecaster.historical_forecasts(series)
    several = kind not in ("one", "channels")
    each = zip(past, series, forecast, strict=True) if several else [(past, series, forecast)]
    for rows, values, last in each:
        assert rows.shape == (len(values), *last.shape)
        assert np.abs(rows[-1] - last).max() < 1e-4  # each alone, and all in one padded batch
        assert np.abs(forecaster.predict(values[:20]) - rows[19]).max() < 1e-4  # no row looks ahead


@pytest.mark.parametrize("kind", SERIES)
def test_updates_are_forecasts_of_the_whole(kind: str) -> None:
    """In chunks and value by value; a pickled forecaster goes on where it was."""
    series, _ = SERIES[kind]
    several = kind not in ("one", "channels")

    def cut(start: int, stop: int | None) -> Any:
        return [values[start:stop] for values in series] if several else series[start:stop]

    if kind == "array":
        series, cut = np.asarray(series), lambda start, stop: np.asarray(series)[:, start:stop]
    forecaster = DelayForecaster(2, **TINY).fit(series)
    expected = forecaster.predict(series)
    forecaster.begin(cut(0, 10)).update(cut(10, 11)).update(cut(11, 12)).update(cut(12, 20))
    forecaster.update(cut(20, 21))
    restored = pickle.loads(pickle.dumps(forecaster))
    for one in (restored, forecaster):
        assert np.abs(one.update(cut(21, None)).predict() - expected).max() < 1e-4
    assert np.array_equal(forecaster.predict(series), expected)


def test_a_followed_series_takes_no_more_memory_as_it_grows() -> None:
    series = _waves(400, 1)[:, 0]
    forecaster = DelayForecaster(2, **TINY).fit(series[:100]).begin(series[:100])
    state = forecaster._followed._state.nbytes
    for value in series[100:]:
        forecaster.update(value)
    forecaster._followed._settle()
    assert forecaster._followed._state.nbytes == state
    assert np.abs(forecaster.predict() - forecaster.predict(series)).max() < 1e-4


def test_what_is_known_beforehand_is_used() -> None:
    """Series of noise that a future covariate reveals: hopeless without it, and forecast with it, streams included."""
    known = [_noise(length, seed) for seed, length in enumerate((300, 220, 250))]
    series = [10 + 5 * values[:-3] for values in known]
    alone = DelayForecaster(3, max_epochs=20, **SMALL).fit(series)
    assert alone.score(series) < 0.2
    forecaster = DelayForecaster(3, max_epochs=150, **SMALL).fit(series, future_covariates=known)
    assert forecaster.score(series, future_covariates=known) > 0.9
    forecast = forecaster.predict(series, future_covariates=known)
    true = np.stack([10 + 5 * values[-3:] for values in known])
    assert np.square(forecast - true).mean() < 0.1 * 25
    forecaster.begin([v[:50] for v in series], future_covariates=[v[:53] for v in known])
    forecaster.update([v[50:51] for v in series], future_covariates=[v[53:54] for v in known])
    forecaster.update([v[51:] for v in series], future_covariates=[v[54:] for v in known])
    assert np.abs(forecaster.predict() - forecast).max() < 1e-3


def test_other_series_help() -> None:
    """Noise that another series has shown a step before."""
    leader = _noise(400)
    series = np.concatenate([[0.0], leader[:-1]])
    forecaster = DelayForecaster(1, max_epochs=100, **SMALL).fit(series, past_covariates=leader)
    assert forecaster.score(series, past_covariates=leader) > 0.9
    assert abs(forecaster.predict(series, past_covariates=leader)[0] - leader[-1]) < 0.5
    with pytest.raises(ValueError, match="fitted with past_covariates, so it needs those of these series"):
        forecaster.predict(series)


def test_intervals_cover_what_they_say() -> None:
    series = [_noise(400, seed) for seed in range(16)]
    forecaster = DelayForecaster(1, quantiles=(0.1, 0.5, 0.9), max_epochs=30, **SMALL).fit(series)
    fresh = [_noise(30, seed) for seed in range(100, 500)]
    low, high = forecaster.predict_interval([values[:-1] for values in fresh])
    true = np.array([values[-1:] for values in fresh])
    assert 0.74 < ((low < true) & (true < high)).mean() < 0.86


def test_series_are_read_however_they_are_kept() -> None:
    ragged = [_waves(length, 1)[:, 0] for length in (30, 20)]
    objects = np.empty(2, object)
    objects[:] = ragged
    forecaster = DelayForecaster(2, **TINY).fit(ragged)
    expected = forecaster.predict(ragged)
    for kept in (objects, tuple(ragged), [values.tolist() for values in ragged], list(map(torch.tensor, ragged))):
        assert np.array_equal(forecaster.predict(kept), expected)
    assert np.array_equal(forecaster.predict(ragged[0].tolist()), forecaster.predict(ragged[0]))
    assert np.array_equal(forecaster.predict(ragged[0].astype(int)), forecaster.predict(ragged[0].astype(int).tolist()))


def test_only_some_steps() -> None:
    series = _waves(60, 1)[:, 0]
    assert DelayForecaster([1, 5, 9], **TINY).fit(series).predict(series).shape == (3,)


def _numpy_state() -> bytes:
    return np.random.get_state()[1].tobytes()  # noqa: NPY002


def test_the_seed_decides_everything_and_no_other_seed_is_touched() -> None:
    series = _waves(40, 2)
    torch_before, numpy_before = torch.get_rng_state(), _numpy_state()
    first, second = (DelayForecaster(2, dropout=0.2, **TINY).fit(series).predict(series) for _ in range(2))
    other = DelayForecaster(2, **{**TINY, "random_state": 1}, dropout=0.2).fit(series).predict(series)
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert _numpy_state() == numpy_before


def test_scikit_learn_cross_validates() -> None:
    """Splits are of times for one series, and of series for a list."""
    series = _waves(60, 2)
    assert cross_val_score(DelayForecaster(**TINY), series, cv=TimeSeriesSplit(2)).shape == (2,)
    assert cross_val_score(DelayForecaster(**TINY), [series[:30], series[20:], series], cv=3).shape == (3,)


def test_wrong_input() -> None:
    series, two = _waves(40, 1)[:, 0], _waves(40, 2)
    fitted = DelayForecaster(5, **TINY).fit(series)
    levelled = DelayForecaster(quantiles=(0.25, 0.5, 0.75), **TINY).fit(series)
    planned = DelayForecaster(5, **TINY).fit(series, future_covariates=two)
    for call, message in (
        (lambda: DelayForecaster(0).fit(series), "horizon must be a whole number of at least 1, not 0"),
        (lambda: DelayForecaster([3, 1]).fit(series), "the steps of horizon must increase"),
        (lambda: DelayForecaster(quantiles=(0.9, 0.5)).fit(series), "quantiles must be increasing numbers"),
        (lambda: DelayForecaster(quantiles=(0.1, 0.9)).fit(series), "quantiles must contain 0.5"),
        (lambda: DelayForecaster(max_epochs=0).fit(series), "max_epochs must be a whole number of at least 1"),
        (lambda: DelayForecaster(learning_rate=0).fit(series), "learning_rate must be a positive number"),
        (lambda: DelayForecaster(weight_decay=-1).fit(series), "weight_decay must be a number of at least 0"),
        (lambda: DelayForecaster(validation_fraction=1).fit(series), "validation_fraction must lie in"),
        (lambda: DelayForecaster(40).fit(series), "a series of 40 samples is too short: .* at least 41"),
        (lambda: DelayForecaster(30).fit(series), "all series are too short to hold out their last 10 %"),
        (lambda: DelayForecaster(**TINY).fit([series] * 2, held_out=[2]), "held_out must name some of the 2 series"),
        (lambda: DelayForecaster(**TINY).fit([series] * 2, held_out=[0, 1]), "held_out must name .* and not all"),
        (lambda: DelayForecaster(**TINY).fit([series, two]), r"must all have shape \(times,\) or all"),
        (lambda: DelayForecaster(**TINY).fit([two, two[:, :1]]), r"same channels, not \[1, 2\]"),
        (lambda: DelayForecaster(**TINY).fit(np.zeros((2, 2, 2, 2))), "X has 4 axes"),
        (
            lambda: DelayForecaster(**TINY).fit(series, past_covariates=two[:30]),
            "must reach the end of .*: 40 times, not 30",
        ),
        (lambda: DelayForecaster(**TINY).fit(series, past_covariates=[two, two]), "is of 2 series, but there are 1"),
        (lambda: fitted.predict(two), "X has 2 features, but DelayForecaster is expecting 1 features"),
        (lambda: fitted.predict(), r"no series is followed yet; call begin\(X\)"),
        (lambda: fitted.update(1.0), r"no series is followed yet; call begin\(X\)"),
        (lambda: fitted.predict(series, future_covariates=two), "has 2 channels, but .* fitted with none"),
        (lambda: planned.predict(series, future_covariates=two), "5 times beyond the end .*: 45 times, not 40"),
        (lambda: fitted.score(series[:6]), "needs series of at least 7 samples"),
        (lambda: fitted.predict_interval(series), "needs the quantile 0.1, but .* the mean alone"),
        (lambda: levelled.predict_interval(series, 0.9), r"needs the quantile 0.05, but .* \[0.25, 0.5, 0.75\]"),
        (lambda: levelled.begin([series] * 2).update([series]), "2 series are followed, but there are values for 1"),
        (lambda: levelled.begin([series] * 2).update(series), "must have the axes of the series"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
