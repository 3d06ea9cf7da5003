"""Delays from data: what is found, what is not, and what is refused."""

import numpy as np
import pytest
import torch

from delayssm import DS4D, delay_evidence, suggest_delays
from delayssm.suggestion import SHUFFLES, _threshold

LENGTH, ROWS = 300, 64


def _noise(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def _delayed(x: np.ndarray, *lags: int) -> np.ndarray:
    """Return the sum of a signal at some lags."""
    return sum(np.concatenate([np.zeros_like(x[:, :lag]), x[:, : x.shape[1] - lag]], 1) for lag in lags)


@pytest.mark.parametrize("lags", [(17,), (40, 171), (5, 6, 7), (250,)])
def test_lags_of_noisy_echoes_are_found(lags: tuple[int, ...]) -> None:
    x = _noise(0, ROWS, LENGTH)
    y = _delayed(x, *lags) + 2 * _noise(1, ROWS, LENGTH)
    assert set(delay_evidence(x, y, LENGTH + 5).lags) == set(lags)


def test_a_correlated_signal_has_no_ridge_of_lags() -> None:
    """An autoregressive signal is like itself some steps later, but only one lag explains the target."""
    x = _noise(2, ROWS, LENGTH)
    for t in range(1, LENGTH):
        x[:, t] += 0.9 * x[:, t - 1]
    y = _delayed(x, 120) + _noise(3, ROWS, LENGTH)
    evidence = delay_evidence(x, y, 200)
    assert (evidence.scores[115:126] > evidence.threshold).all()
    assert evidence.lags == (120,)


def test_one_long_series() -> None:
    x = _noise(4, 1, 8000)
    assert delay_evidence(x, _delayed(x, 333) + _noise(5, 1, 8000), 500).lags == (333,)


def test_several_features() -> None:
    x = _noise(6, ROWS, LENGTH, 3)
    y = np.stack([_delayed(x[..., 2], 90), _delayed(x[..., 0], 30)], -1) + _noise(7, ROWS, LENGTH, 2)
    assert set(delay_evidence(x, y, LENGTH).lags) == {30, 90}


def test_tokens_that_are_renamed() -> None:
    """The dependence need not be a copy, nor monotonic."""
    random = np.random.default_rng(8)
    tokens, names = random.integers(0, 20, (ROWS, LENGTH)), random.permutation(20)
    targets = np.full_like(tokens, -100)
    targets[:, 150:] = names[tokens[:, 150 - 77 : LENGTH - 77]]
    assert delay_evidence(torch.from_numpy(tokens), torch.from_numpy(targets), LENGTH).lags == (77,)


def test_tokens_that_follow_each_other_have_no_ridge_of_lags() -> None:
    """Each token says much about the next ones, but only one lag explains the target."""
    random = np.random.default_rng(20)
    steps = (random.random((ROWS, LENGTH)) < 0.2) * random.integers(0, 20, (ROWS, LENGTH))
    tokens, names = np.cumsum(steps, 1) % 20, random.permutation(20)
    targets = np.full_like(tokens, -1)
    targets[:, 100:] = names[tokens[:, 100 - 77 : LENGTH - 77]]
    evidence = delay_evidence(tokens, targets, 200)
    assert (evidence.scores[[75, 79]] > evidence.threshold).all()
    assert evidence.lags == (77,)


def test_a_square_is_found() -> None:
    """The correlation of a symmetric signal with its square is zero."""
    x = _noise(21, ROWS, LENGTH)
    assert delay_evidence(x, _delayed(x, 60) ** 2 + _noise(22, ROWS, LENGTH), 100).lags == (60,)


def test_an_echo_of_the_input_itself_is_found() -> None:
    x = _noise(23, ROWS, LENGTH)
    assert delay_evidence(x, x - 0.3 * _delayed(x, 45) + 0.1 * _noise(24, ROWS, LENGTH), 100).lags == (45,)


def test_the_parity_of_two_streams_is_invisible() -> None:
    bits = np.random.default_rng(25).integers(0, 2, (ROWS, LENGTH, 2)).astype(float)
    parity = (_delayed(bits[..., 0], 40) + bits[..., 1]) % 2
    with pytest.warns(UserWarning, match="no lag between 4 and 99 steps is significant"):
        suggest_delays(bits, parity, 100, 4)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 8])
def test_few_rows(rows: int) -> None:
    """The lags that are there must not appear in the shuffled data, which would hide weaker ones."""
    x = _noise(26, rows, 4800 // rows)
    y = _delayed(x, 60) + 0.4 * _delayed(x, 90) + _noise(27, rows, 4800 // rows)
    assert delay_evidence(x, y, 200).lags == (60, 90)


def test_a_series_that_is_hardly_longer_than_the_delays() -> None:
    x = _noise(28, 1, LENGTH)
    assert delay_evidence(x, _delayed(x, 60) + 0.5 * _noise(29, 1, LENGTH), 250).lags == (60,)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_the_scale_of_signals_does_not_matter(scale: float) -> None:
    x = _noise(30, ROWS, LENGTH)
    assert delay_evidence(scale * x, scale * _delayed(x, 60), 100).lags == (60,)


def test_forms_of_data() -> None:
    """Tensors of any precision, lists, and truth values."""
    x = _noise(31, ROWS, LENGTH)
    y = _delayed(x, 60)
    for inputs, targets in (
        (torch.from_numpy(x).float(), torch.from_numpy(y).bfloat16()),
        (x.tolist(), y.tolist()),
        (x > 0, torch.from_numpy(y > 0)),
        (np.stack([x, 0 * x], -1), y),
    ):
        assert delay_evidence(inputs, targets, 100).lags == (60,)


def test_data_that_are_too_short() -> None:
    x = _noise(32, 2, 10)
    with pytest.warns(UserWarning, match="no lag between 4 and 19 steps has 50 pairs of an input and a target"):
        suggest_delays(x, x, 20, 4)


def test_what_depends_on_time_alone_is_no_lag() -> None:
    x, y = _noise(9, ROWS, LENGTH), _noise(10, ROWS, LENGTH)
    x[:, 50] += 10
    y[:, 170] += 10
    assert delay_evidence(x, y, LENGTH).lags == ()


@pytest.mark.parametrize("seed", range(8))
def test_independent_data_suggest_the_grid(seed: int) -> None:
    random = np.random.default_rng(seed)
    x, y = (np.cumsum(random.normal(size=(ROWS, LENGTH)), 1) for _ in range(2))
    with pytest.warns(UserWarning, match="no lag between 4 and 255 steps is significant"):
        delays = suggest_delays(x, y, 256, 10, seed=seed)
    assert torch.equal(delays, 1 + (torch.arange(10).double() + 0.5) / 10 * 254)


@pytest.mark.parametrize(("rows", "length"), [(1, 3000), (4, 1000), (32, 200)])
@pytest.mark.parametrize("kind", ["correlated inputs", "both correlated", "tokens"])
def test_no_false_alarms(kind: str, rows: int, length: int) -> None:
    """Of some data sets without any dependence, none has a lag."""
    for seed in range(4):
        random = np.random.default_rng(seed)
        x, y = random.normal(size=(2, rows, length))
        for series in (x, y)[: 1 + (kind == "both correlated")]:
            for t in range(1, length):
                series[:, t] += 0.9 * series[:, t - 1]
        if kind == "tokens":
            x, y = random.integers(0, 20, (2, rows, length))
        assert delay_evidence(x, y, 150, seed=seed).lags == ()


def test_half_of_the_channels_are_placed() -> None:
    x = _noise(11, ROWS, LENGTH)
    delays = suggest_delays(x, _delayed(x, 40, 171) + _noise(12, ROWS, LENGTH), 256, 9)
    assert sorted(delays[:5].tolist()) in ([40, 40, 40, 171, 171], [40, 40, 171, 171, 171])
    assert torch.equal(delays[5:], 1 + (torch.arange(4).double() + 0.5) / 4 * 254)
    everywhere = suggest_delays(x, _delayed(x, 40, 171) + _noise(12, ROWS, LENGTH), 256, 9, share=1)
    assert sorted(set(everywhere.tolist())) == [40, 171]
    layer = DS4D(9, 8, 256, delays=delays)
    torch.testing.assert_close(layer.ssm.delays().double(), delays, atol=1e-3, rtol=0)


def test_missing_targets_are_ignored() -> None:
    x = _noise(13, ROWS, LENGTH)
    y = _delayed(x, 60) + _noise(14, ROWS, LENGTH)
    y[:, ::3] = np.nan
    assert delay_evidence(x, y, 100).lags == (60,)


def test_the_same_seed_gives_the_same_answer() -> None:
    x, y = _noise(15, ROWS, LENGTH), _noise(16, ROWS, LENGTH)
    one, other = (delay_evidence(x, y, 100, seed=3) for _ in range(2))
    assert one.threshold == other.threshold
    assert np.array_equal(one.scores, other.scores)


def test_bad_data_are_refused() -> None:
    x = _noise(17, 4, 20)
    with pytest.raises(ValueError, match=r"agree in batch and length, not \(4, 20\) and \(4, 19\)"):
        delay_evidence(x, x[:, :19], 10)
    with pytest.raises(ValueError, match="max_delay must be at least 3, not 2"):
        delay_evidence(x, x, 2)
    with pytest.raises(ValueError, match="there is no target"):
        delay_evidence(x, np.full_like(x, np.nan), 10)
    with pytest.raises(ValueError, match="inputs must be finite"):
        delay_evidence(np.where(x > 0, x, np.inf), x, 10)
    with pytest.raises(TypeError, match=r"real numbers or tokens, not torch\.complex128"):
        delay_evidence(x * 1j, x, 10)
    with pytest.raises(TypeError, match="an array or a tensor of numbers, not of object"):
        delay_evidence(x, None, 10)
    with pytest.raises(TypeError, match="an array or a tensor of numbers, not of <U1"):
        delay_evidence([["a", "b"]], [["a", "b"]], 10)
    with pytest.raises(ValueError, match="inputs are constant, or the same in all rows"):
        delay_evidence(np.full((9, 60), 0.1), _noise(18, 9, 60), 10)
    with pytest.raises(ValueError, match="targets are constant, or the same in all rows"):
        delay_evidence(_noise(18, 9, 60), np.tile(_noise(19, 1, 60), (9, 1)), 10)
    with pytest.raises(ValueError, match="Whole numbers are tokens: pass signals as floats"):
        delay_evidence((100 * x).astype(int), x, 10)
    with pytest.raises(
        ValueError, match=r"\(batch, length\) or \(batch, length, features\), not \(4,\); a single series"
    ):
        delay_evidence(x[:, 0], x, 10)
    with pytest.raises(ValueError, match="channels must be at least 1, not 0"):
        delay_evidence(x, x, 10).delays(0)
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\], not 1\.5"):
        delay_evidence(x, x, 10).delays(4, share=1.5)


def test_chance_exceeds_the_threshold_once_in_a_thousand_times() -> None:
    """Whatever the Gumbel distribution of the largest score, of which the threshold sees only a few draws."""
    random = np.random.default_rng(33)
    draws = 30 + 4 * random.gumbel(size=(20_000, SHUFFLES))
    thresholds = (np.array([_threshold(row.tolist()) for row in draws]) - 30) / 4
    assert float(-np.expm1(-np.exp(-thresholds)).mean()) == pytest.approx(1e-3, rel=0.1)
