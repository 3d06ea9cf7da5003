"""The Mackey-Glass study: exponents, linear forecasts that run freely, trials and finals at toy size."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from delayssm_lab.data.generate.mackey_glass import lyapunov_exponents, mackey_glass
from delayssm_lab.models.baselines import LSTMSeries
from delayssm_lab.studies.equations.contenders import DelaySpec, DiagonalSpec, RecurrentSpec, parameters
from delayssm_lab.studies.equations.forecast import FittedModel, ForecastProtocol, train, valid_steps
from delayssm_lab.studies.equations.linear import Autoregression
from delayssm_lab.studies.equations.mackey_glass import MackeyGlass
from delayssm_lab.studies.equations.points import Final, Trial
from delayssm_lab.study import Places
from tests.support.studies import make, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = (
    (DelaySpec(4, 2, 1, max_delay=20), DelaySpec(4, 2, 1, max_delay=30)),
    (DiagonalSpec(4, 2, 1), DiagonalSpec(4, 4, 1)),
    (RecurrentSpec(3, 1), RecurrentSpec(2, 2)),
)
TOY = MackeyGlass(
    taus=(17,), series=8, length=80, epochs=2, trial_length=40, trial_epochs=1, seeds=2, one_step_seeds=1,
    taps=(2, 4), solutions=2, solution_length=40, models=TINY, rates=(1e-3, 1e-2), past=40, steps=30, lags=20,
)  # fmt: skip


def test_a_stable_equation_has_the_exponent_of_its_characteristic_equation() -> None:
    """With a delay of 2 all solutions go to 1, where differences follow d' = -0.4 d(t - 2) - 0.1 d.

    In steps of a tenth that is d(n + 1) = 0.99 d(n) - 0.04 d(n - 20).
    """
    roots = np.roots([1, -0.99, *[0] * 19, 0.04])
    expected = 10 * np.log(np.abs(roots).max())
    assert expected < -0.1
    assert lyapunov_exponents(3, 800, tau=2, washout=200) == pytest.approx(expected, rel=5e-3)


def test_growth_is_counted_over_whole_delays() -> None:
    first, rest, odd = (lyapunov_exponents(3, n, tau=2, washout=w) for n, w in ((20, 0), (40, 20), (39, 21)))
    assert 20 * first + 40 * rest == pytest.approx(60 * lyapunov_exponents(3, 60, tau=2, washout=0))
    assert odd == pytest.approx(rest)
    with pytest.raises(ValueError, match="whole delays of 17 time units, so 16 are too few"):
        lyapunov_exponents(1, 16)


def test_the_exponent_of_the_chaotic_equation_is_that_of_the_literature() -> None:
    """About 0.006 to 0.007 per time unit."""
    exponents = lyapunov_exponents(64, 1500, tau=17)
    assert 0.0055 < exponents.mean() < 0.0075


def test_two_solutions_diverge_as_the_exponent_tells() -> None:
    """Between errors that are still small, over ten Lyapunov times and many pairs of solutions."""

    def solution(x: np.ndarray) -> np.ndarray:
        """Return a solution at unit times from a past of 170 values, (solutions, times)."""
        past, now = list(x.T), x[:, -1]
        for n in range(10 * 1600):
            delayed = past[n]
            past.append(now)
            now = now + 0.1 * (0.2 * delayed / (1 + delayed**10) - 0.1 * now)
        return np.array(past[170::10]).T

    first = 1.2 + 0.2 * (np.random.default_rng(0).random((24, 170)) - 0.5)
    distance = np.abs(solution(first + 1e-12) - solution(first))
    growth = np.log(distance[:, 1100:1600].mean(1) / distance[:, 100:600].mean(1)) / 1000
    assert growth.mean() == pytest.approx(lyapunov_exponents(24, 1000, tau=17, washout=500).mean(), rel=0.25)


def test_contenders_are_of_one_size() -> None:
    study = MackeyGlass()
    assert len({len(specs) for specs in study.models}) == 1
    for specs in study.models:
        assert len({spec.settings for spec in specs}) == len(specs)
        assert all(abs(parameters(spec.build()) / 17_600 - 1) < 0.04 for spec in specs)


def test_autoregression_that_runs_freely_feeds_its_forecasts_back() -> None:
    """Of waves, whose next values are linear in the last two, forecasts 1 and 3 steps ahead go on for ever."""
    t = np.arange(80)
    waves = np.stack([np.sin(0.3 * t), np.cos(0.3 * t)])
    for ahead in (1, 3):
        model = Autoregression.fit(waves[:, 10:50], taps=2, ahead=ahead)  # zeros stand before the first value
        fitted = replace_weights(model, waves, ahead)
        assert np.abs(fitted.run(waves[:, :50], 30) - waves[:, 50:]).max() < 1e-6


def replace_weights(model: Autoregression, waves: np.ndarray, ahead: int) -> Autoregression:
    """Return the forecast whose weights fit where the whole past is known."""
    rows = np.concatenate([[[1.0, w[t - 1], w[t]] for t in range(1, 80 - ahead)] for w in waves])
    true = np.concatenate([w[1 + ahead :] for w in waves])
    return replace(model, weights=np.linalg.lstsq(rows, true)[0])


@pytest.mark.parametrize("spec", [specs[0] for specs in TINY], ids=lambda spec: spec.family)
@pytest.mark.parametrize("ahead", [1, 3])
def test_a_model_that_runs_freely_answers_its_own_forecasts(spec: DelaySpec, ahead: int) -> None:
    """What it returns is what the whole model forecasts for the past followed by what it returned."""
    torch.manual_seed(0)
    trained = FittedModel(spec.build().eval(), scale=0.5, best_epoch=1)
    past = np.random.default_rng(0).normal(size=(2, 30))
    run = trained.run(past, 20, ahead)
    whole = np.concatenate([past, run], axis=1)
    assert np.abs(trained.forecast(whole)[:, 30 - ahead : 50 - ahead] - run).max() < 1e-5


def test_influence_is_the_slope() -> None:
    torch.manual_seed(0)
    trained = FittedModel(DelaySpec(4, 2, 1, max_delay=20).build().eval(), scale=1.0, best_epoch=1)
    series = np.random.default_rng(0).normal(size=(1, 30))
    moved = series.copy()
    moved[0, 30 - 1 - 7] += 1e-2
    slope = (trained.forecast(moved) - trained.forecast(series))[0, -1] / 1e-2
    assert trained.influence(series, lags=10)[7] == pytest.approx(abs(slope), rel=0.05, abs=1e-4)


def test_training_lowers_the_error_and_repeats_itself() -> None:
    protocol = ForecastProtocol(17, ahead=1, series=8, length=100, epochs=40)
    data = protocol.split()
    first, again = (train(DelaySpec(8, 4, 1, max_delay=20), 1e-2, protocol, data, seed=3) for _ in range(2))
    forecasts = first.forecast(data.chosen[:, :-1])
    assert np.array_equal(forecasts, again.forecast(data.chosen[:, :-1]))
    assert protocol.error(data.chosen, forecasts) < 40  # a mean has 100


def test_protocols_have_the_series_of_the_equation() -> None:
    data = ForecastProtocol(30, ahead=2, series=8, length=50).split()
    assert np.array_equal(np.concatenate(data), mackey_glass(8, 52, tau=30))
    assert [len(part) for part in data] == [2, 2, 4]


def test_valid_steps() -> None:
    true = np.zeros((3, 4))
    forecasts = np.array([[0, 0.5, 2, 0], [3, 0, 0, 0], [0.9, 0.9, 0.9, -0.9]])
    assert valid_steps(true, forecasts, 1.0).tolist() == [2, 0, 4]


def test_toy_study(tmp_path: Path) -> None:
    content = make(TOY, tmp_path)
    assert set(content) == {
        "table.md", "free.md", "exponents.md", "trials.md", "mackey-glass.png", "points.jsonl", "about.json",
    }  # fmt: skip
    names = [row[1] for row in table_rows(content["table.md"])[2:]]
    assert names.count("LSTM, as published") == names.count("last value") == names.count("DS4D, 2 seeds") == 1
    assert sum(name.startswith("autoregression") for name in names) == 2
    free = table_rows(content["free.md"])[2:]
    assert [row[2] for row in free if row[1] == "1"].count("S4D, 1 seed") == 1
    assert len(table_rows(content["trials.md"])[2:]) == 6


def test_finals_take_what_was_best_in_trials(tmp_path: Path) -> None:
    places = Places(tmp_path / "work", tmp_path / "results")
    trials = [point for point in TOY.points() if isinstance(point, Trial)]
    final = next(point for point in TOY.points() if isinstance(point, Final))
    with pytest.raises(ValueError, match="4 trials are still to be measured"):
        TOY.measure(final, places)
    TOY.run(places)
    known = TOY._known(places)
    mine = [trial for trial in trials if trial.spec in final.specs]
    best = min(mine, key=lambda trial: known[trial].values["validation"])
    assert known[final].values["rate"] == best.rate
    assert final.specs[int(known[final].values["setting"])] == best.spec
    assert all(set(known[trial].values) == {"parameters", "validation", "best epoch"} for trial in trials)


def test_partial_results_are_readable() -> None:
    """After some points there are tables of them, and no empty picture."""
    simple = [point for point in TOY.points() if not isinstance(point, Trial | Final)]
    for points in (simple[:1], simple):
        results = {point: TOY.measure(point, Places()) for point in points}
        assert [name for name, _ in TOY.show(results)] == ["table.md", "free.md", "exponents.md"]


def test_the_lstm_of_series_is_the_same_in_chunks() -> None:
    torch.manual_seed(0)
    model, x = LSTMSeries(2, 5, 2, 3), torch.randn(4, 20, 2)
    first, state = model.stream(x[:, :12], model.init_state(4))
    steps = []
    for t in range(12, 20):
        answer, state = model.step(x[:, t], state)
        steps.append(answer)
    assert torch.allclose(torch.cat([first, torch.stack(steps, 1)], 1), model(x), atol=1e-6)
