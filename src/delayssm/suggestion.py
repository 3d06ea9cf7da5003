"""Delays from data: which lags of the inputs say something about the targets.

Training moves a delay by a few steps, so where it starts decides what a channel can learn. Inputs and targets become
features: signals stand for themselves, and a token for some random numbers and its own value, so that any dependence
counts, not only copying. For features f of inputs and g of targets, centred and of variance 1, the score of lag k is

    score(k) = sum over i, j of  C_ij(k)^2 / V_i(k),    C_ij(k) = sum over t of f_i(x_(t-k)) g_j(y_t),
                                                        V_i(k)  = sum over t of f_i(x_(t-k))^2,

which has the mean (number of i, j) if nothing depends on anything. All lags come from one correlation by FFT. What is
significant is decided by data whose targets were shuffled. Of the significant lags, the one with the highest score is
found first. What it explains is then subtracted from g, and the next one must also be significant in the rest, so that
an echo of a lag in the inputs' own correlation is no lag of its own.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Features of a token: its value, and random numbers.
TOKEN_FEATURES = 8
#: Lags below this number are what a layer has without any delay. What they explain is subtracted first.
RECENT = 4
#: Shuffled versions of the data, from which the largest score that chance reaches is estimated.
SHUFFLES = 16
#: Probability that data without any dependence have a lag that is found.
FALSE_ALARM = 1e-3
#: Lags that are found at most.
MOST = 64
#: Pairs of an input and a target that a lag must have for its score to be counted.
FEWEST_PAIRS = 50


@dataclass(frozen=True, eq=False)
class DelayEvidence:
    """What the data say about delays. `delay_evidence` finds it.

    >>> x = np.random.default_rng(0).normal(size=(32, 200))
    >>> evidence = delay_evidence(x, np.roll(x, 25, axis=1), max_delay=50)
    >>> evidence.lags
    (25,)
    >>> bool(evidence.scores[25] > evidence.threshold)
    True

    Args:
        lags: Significant lags in steps, the clearest first.
        scores: Score of each lag below `max_delay`, in standard deviations from that of independent data, after recent
            inputs have been accounted for.
        threshold: Score that chance exceeds with a probability of one in a thousand.
        max_delay: L_max, the number of lags that were looked at.
    """

    lags: tuple[int, ...]
    scores: NDArray[np.float64]
    threshold: float
    max_delay: int

    def delays(self, channels: int) -> Float[Tensor, " channels"]:
        """Return an initial delay for each channel: half of them at the lags that were found, the rest on the grid.

        Without any lag, all are on the grid.
        """
        return place_delays(self.lags, self.max_delay, channels)

    def draw(self, axes: Axes) -> None:
        """Draw the scores with the threshold and the lags that were found."""
        axes.plot(self.scores, color="C0", linewidth=0.8)
        axes.axhline(self.threshold, color="gray", linestyle="--", linewidth=0.8, label="chance exceeds it 1 in 1,000")
        axes.plot(self.lags, self.scores[list(self.lags)], "C3v", markersize=5, label="suggested delays")
        axes.set(xlabel="lag (steps)", ylabel="score (standard deviations)", yscale="symlog")
        axes.legend()


def place_delays(lags: Sequence[float], max_delay: int, channels: int) -> Float[Tensor, " channels"]:
    """Return delays for the channels of a layer: half of them at given lags, in turn, and the rest on the grid."""
    if channels < 1:
        raise ValueError(f"channels must be at least 1, not {channels}")
    placed = (channels + 1) // 2 if lags else 0
    found = [float(lags[i % len(lags)]) for i in range(placed)]
    spread = channels - placed
    grid = [1 + (j + 0.5) / spread * (max_delay - 2) for j in range(spread)]
    return torch.tensor(found + grid, dtype=torch.float64)


def suggest_delays(
    inputs: ArrayLike | Tensor, targets: ArrayLike | Tensor, max_delay: int, channels: int, *, seed: int = 0
) -> Float[Tensor, " channels"]:
    """Return initial delays for the channels of a layer, to be passed as `delays`.

    Half of the channels are placed at lags where the targets depend on the inputs, and the rest on the grid. If no
    such lag is found, all are on the grid, and a warning says so.

    >>> x = np.random.default_rng(0).normal(size=(32, 200))
    >>> delays = suggest_delays(x, np.roll(x, 25, axis=1), max_delay=50, channels=8)
    >>> delays[:4].tolist()
    [25.0, 25.0, 25.0, 25.0]
    >>> layer = DS4D(8, 16, max_delay=50, delays=delays)

    Args:
        inputs: Signals (batch, length) or (batch, length, features), or tokens (batch, length) as whole numbers.
        targets: What is to be predicted at each time, in the same forms. NaN, or a negative token, is no target.
        max_delay: `max_delay` of the layer: lags below it are looked at.
        channels: Number of channels of the layer.
        seed: Seed of the random features and of the shuffled data.
    """
    evidence = delay_evidence(inputs, targets, max_delay, seed=seed)
    if not evidence.lags:
        warnings.warn(
            f"no lag between {RECENT} and {max_delay - 1} steps is significant in these data; all delays are on the "
            "grid. More data may show weaker dependences",
            stacklevel=2,
        )
    return evidence.delays(channels)


@torch.no_grad()
def delay_evidence(
    inputs: ArrayLike | Tensor, targets: ArrayLike | Tensor, max_delay: int, *, seed: int = 0
) -> DelayEvidence:
    """Return which lags of the inputs say something about the targets.

    >>> x = np.random.default_rng(0).normal(size=(32, 200))
    >>> delay_evidence(x, np.roll(x, 25, axis=1), max_delay=50).lags
    (25,)

    Args:
        inputs: Signals (batch, length) or (batch, length, features), or tokens (batch, length) as whole numbers.
        targets: What is to be predicted at each time, in the same forms. NaN, or a negative token, is no target.
        max_delay: Number of lags that are looked at, from 0 on.
        seed: Seed of the random features and of the shuffled data.
    """
    if max_delay < 3:
        raise ValueError(f"max_delay must be at least 3, not {max_delay}")
    x, y = _data("inputs", inputs), _data("targets", targets)
    if x.shape[:2] != y.shape[:2]:
        raise ValueError(
            f"inputs and targets must agree in batch and length, not {tuple(x.shape[:2])} and {tuple(y.shape[:2])}"
        )
    random = np.random.default_rng(seed)
    valid = _valid(y)
    if not bool(_valid(x).all()):
        raise ValueError("inputs must be finite numbers, or tokens from 0 on; only targets may be missing")
    if not bool(valid.any()):
        raise ValueError("there is no target: all are NaN or negative")
    f = _whitened(_features(x, random), torch.ones_like(valid))
    g = _whitened(_features(y.clamp(min=0) if not y.is_floating_point() else y.nan_to_num(), random), valid)
    lags = min(max_delay, x.shape[1])
    search = _Search(f, g, valid, lags)
    search.explain(range(min(RECENT, lags)))
    scores = search.scores()
    threshold = _threshold([float(search.scores_by_chance(random).max()) for _ in range(SHUFFLES)])
    found: list[int] = []
    significant = scores > threshold
    current = scores
    while len(found) < MOST and float(current.max()) > threshold:
        found.append(int(current.argmax()))
        significant[found[-1]] = False  # what is left of a lag that was found is no new one
        search.explain([found[-1]])
        current = torch.where(significant, search.scores(), -math.inf)
    padded = np.zeros(max_delay)
    padded[:lags] = scores.numpy()
    return DelayEvidence(tuple(found), padded, threshold, max_delay)


class _Search:
    """The targets' features, and what is left of them when some lags of the inputs have been accounted for.

    Args:
        f: Features of inputs, (batch, length, p).
        g: Features of targets, (batch, length, q), zero where there is no target.
        valid: Where there is a target, (batch, length).
        lags: Number of lags, from 0 on.
    """

    def __init__(
        self, f: Float[Tensor, "B L p"], g: Float[Tensor, "B L q"], valid: Bool[Tensor, "B L"], lags: int
    ) -> None:
        self._f, self._g, self._valid, self._lags = f, g, valid, lags
        self.rest = g
        self._known: list[int] = []
        self._spectra = torch.fft.rfft(f, self._size, dim=1)
        known = (f != 0).any(-1, keepdim=True).to(f.dtype)
        self._squares = torch.fft.rfft(torch.cat([f.square(), known], -1), self._size, dim=1)

    @property
    def _size(self) -> int:
        return self._f.shape[1] + self._lags

    def _correlation(self, spectrum: Tensor) -> Tensor:
        correlation: Tensor = torch.fft.irfft(spectrum, self._size, dim=0)
        return correlation[: self._lags]

    def scores(self, order: Int[Tensor, " B"] | None = None, shift: int = 0) -> Float[Tensor, " lags"]:
        """Return the score of each lag, in standard deviations of independent data.

        With an order of rows, or a shift in time, each row of inputs meets the targets of another row or time.
        """
        g, valid = self.rest, self._valid
        if order is not None:
            g, valid = g[order], valid[order]
        g, valid = g.roll(shift, dims=1), valid.roll(shift, dims=1)
        C = self._correlation(torch.einsum("bwj,bwi->wij", torch.fft.rfft(g, self._size, dim=1), self._spectra.conj()))
        there = torch.fft.rfft(valid.to(g.dtype), self._size, dim=1)[..., None]
        sums = self._correlation((there * self._squares.conj()).sum(0))
        V, pairs = sums[:, :-1], sums[:, -1]
        variance = g.square().sum((0, 1)) / valid.sum()
        expected = V.clamp(min=1e-9)[..., None] * variance.clamp(min=1e-12)
        count = C.shape[1] * C.shape[2]
        score = ((C.square() / expected).sum((1, 2)) - count) / math.sqrt(2 * count)
        lag = torch.arange(self._lags)
        return torch.where((pairs > FEWEST_PAIRS - 0.5) & (lag >= RECENT), score, 0.0)

    def scores_by_chance(self, random: np.random.Generator) -> Float[Tensor, " lags"]:
        """Return scores of inputs with the targets of other rows; of a single series, with those of other times."""
        rows, length, _ = self.rest.shape
        if rows == 1:
            return self.scores(shift=int(random.integers(length // 4, 3 * length // 4 + 1)))
        order = random.permutation(rows)
        following = order[(np.argsort(order) + int(random.integers(1, rows))) % rows]  # never its own targets
        return self.scores(torch.from_numpy(following))

    def explain(self, lags: range | list[int]) -> None:
        """Subtract from the targets' features what the inputs say about them at these lags, and at those before."""
        self._known += lags
        rows, times = self._valid.nonzero(as_tuple=True)
        columns = []
        for lag in self._known:
            column = self._f[rows, (times - lag).clamp(min=0)]
            columns.append(torch.where((times >= lag)[:, None], column, 0.0))
        X, Y = torch.cat(columns, 1), self._g[rows, times]
        gram = X.T @ X
        gram += 1e-6 * (gram.trace() / len(gram) + 1e-12) * torch.eye(len(gram), dtype=gram.dtype)
        self.rest = torch.zeros_like(self._g)
        self.rest[rows, times] = Y - X @ torch.linalg.solve(gram, X.T @ Y)


def _data(name: str, values: ArrayLike | Tensor) -> Tensor:
    """Return signals, (batch, length, features), in float64, or tokens, (batch, length)."""
    data = values.detach().cpu() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
    if data.is_complex() or data.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers or tokens, not {data.dtype}")
    if data.is_floating_point():
        if data.ndim == 2:
            data = data[..., None]
        if data.ndim != 3:
            raise ValueError(f"{name} must be (batch, length) or (batch, length, features), not {tuple(data.shape)}")
        return data.double()
    if data.ndim != 2:
        raise ValueError(f"{name} are tokens, and must be (batch, length), not {tuple(data.shape)}")
    return data.long()


def _valid(data: Tensor) -> Bool[Tensor, "B L"]:
    return data.isfinite().all(-1) if data.is_floating_point() else data >= 0


def _features(data: Tensor, random: np.random.Generator) -> Float[Tensor, "B L p"]:
    """Return signals as they are, and for each token its value and random numbers."""
    if data.is_floating_point():
        return data
    tokens: Int[NDArray[np.int64], "B L"] = data.numpy()
    kinds, places = np.unique(tokens, return_inverse=True)
    table = random.standard_normal((len(kinds), TOKEN_FEATURES))
    table[:, 0] = kinds
    return torch.from_numpy(table)[torch.from_numpy(places.reshape(tokens.shape))]


def _whitened(features: Float[Tensor, "B L p"], valid: Bool[Tensor, "B L"]) -> Float[Tensor, "B L r"]:
    """Return uncorrelated features of variance 1, without the mean of each time; zero where they are not valid.

    The mean of each time is that over the batch, so that what only depends on the time depends on nothing else. A
    single series has no such mean, and loses its own.
    """
    weight = valid.to(features.dtype)[..., None]
    dims = (0,) if len(features) > 1 else (0, 1)
    mean = (features * weight).sum(dims, keepdim=True) / weight.sum(dims, keepdim=True).clamp(min=1)
    centred = (features - mean) * weight
    rows = centred[valid]
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    kept = values > 1e-9 * values[-1].clamp(min=1e-300)
    whitening: Tensor = vectors[:, kept] / values[kept].sqrt()
    return centred @ whitening


def _threshold(largest: list[float]) -> float:
    """Return what the largest of all scores exceeds with probability FALSE_ALARM, by the law of extreme values.

    The largest of many scores has a Gumbel distribution. Its mean and its deviation are those of the given values.
    """
    scale = math.sqrt(6) / math.pi * float(np.std(largest, ddof=1))
    return float(np.mean(largest)) - scale * (np.euler_gamma + math.log(-math.log1p(-FALSE_ALARM)))
