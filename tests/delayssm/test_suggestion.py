"""Delays from data: what is found, what is not, and what is refused."""

import numpy as np
import pytest
import torch

from delayssm import DS4D, delay_evidence, suggest_delays

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


def test_half_of_the_channels_are_placed() -> None:
    x = _noise(11, ROWS, LENGTH)
    delays = suggest_delays(x, _delayed(x, 40, 171) + _noise(12, ROWS, LENGTH), 256, 9)
    assert sorted(delays[:5].tolist()) in ([40, 40, 40, 171, 171], [40, 40, 171, 171, 171])
    assert torch.equal(delays[5:], 1 + (torch.arange(4).double() + 0.5) / 4 * 254)
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
    with pytest.raises(TypeError, match=r"real numbers or tokens, not torch\.bool"):
        delay_evidence(x > 0, x, 10)
    with pytest.raises(ValueError, match=r"\(batch, length\) or \(batch, length, features\), not \(4,\)"):
        delay_evidence(x[:, 0], x, 10)
    with pytest.raises(ValueError, match="channels must be at least 1, not 0"):
        delay_evidence(x, x, 10).delays(0)
