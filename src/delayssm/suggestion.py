"""Delays from data: which lags of the inputs say something about the targets.

Training moves a delay by a few steps, so where it starts decides what a channel can learn. Inputs and targets become
features: signals stand for themselves, those of inputs for their squares as well, and a token for some random numbers
and its own value, so that any dependence counts, not only copying. For features f of inputs and g of targets, centred
and of variance 1, the score of lag k is

    score(k) = sum over i, j of  C_ij(k)^2 / V_i(k),    C_ij(k) = sum over t of f_i(x_(t-k)) g_j(y_t),
                                                        V_i(k)  = sum over t of f_i(x_(t-k))^2,

which has the mean (number of i, j) if nothing depends on anything. All lags come from one correlation by FFT. What is
significant is decided by data whose targets were shuffled between rows, or, if there are few rows, read backwards. Of
the significant lags, the one with the highest score is found first. What it explains is then subtracted from g, and the
next one must also be significant in the rest, so that an echo of a lag in the inputs' own correlation is no lag of its
own.
"""

from __future__ import annotations

import math
import operator
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
#: What a lag explains is fitted for each kind of token, if there are no more kinds than this; else for the features.
MOST_KINDS = 64
#: Fewer rows than this are taken as series whose statistics do not depend on time.
FEW_ROWS = 8
#: Lags below this number are what a layer has without any delay. What they explain is subtracted first.
RECENT = 4
#: Shuffled versions of the data, from which the largest score that chance reaches is estimated.
SHUFFLES = 16
#: Standard deviations from the mean of these to the threshold. The largest of many scores has a Gumbel distribution;
#: one more draw from it exceeds the threshold once in a thousand times, the errors of mean and deviation included.
DEVIATIONS = 6.44
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
        threshold: Score that independent data exceed with a probability of one in a thousand.
        max_delay: L_max, the number of lags that were looked at.
    """

    lags: tuple[int, ...]
    scores: NDArray[np.float64]
    threshold: float
    max_delay: int

    def delays(self, channels: int, share: float = 0.5) -> Float[Tensor, " channels"]:
        """Return an initial delay for each channel: a share at the lags that were found, the rest on the grid.

        Without any lag, all are on the grid.
        """
        return place_delays(self.lags, self.max_delay, channels, share)

    def draw(self, axes: Axes) -> None:
        """Draw the scores with the threshold and the lags that were found."""
        axes.plot(self.scores, color="C0", linewidth=0.8)
        axes.axhline(self.threshold, color="gray", linestyle="--", linewidth=0.8, label="chance exceeds it 1 in 1,000")
        axes.plot(self.lags, self.scores[list(self.lags)], "C3v", markersize=5, label="suggested delays")
        axes.set(xlabel="lag (steps)", ylabel="score (standard deviations)", yscale="symlog")
        axes.legend()


def place_delays(
    lags: Sequence[float], max_delay: int, channels: int, share: float = 0.5
) -> Float[Tensor, " channels"]:
    """Return delays for the channels of a layer: a share of them at given lags, in turn, and the rest on the grid."""
    if channels < 1:
        raise ValueError(f"channels must be at least 1, not {channels}")
    if not 0 < share <= 1:
        raise ValueError(f"share must lie in (0, 1], not {share}")
    placed = math.ceil(share * channels) if lags else 0
    found = [float(lags[i % len(lags)]) for i in range(placed)]
    spread = channels - placed
    grid = [1 + (j + 0.5) / spread * (max_delay - 2) for j in range(spread)]
    return torch.tensor(found + grid, dtype=torch.float64, device="cpu")


def suggest_delays(
    inputs: ArrayLike | Tensor,
    targets: ArrayLike | Tensor,
    max_delay: int,
    channels: int,
    *,
    share: float = 0.5,
    seed: int = 0,
) -> Float[Tensor, " channels"]:
    """Return initial delays for the channels of a layer, to be passed as `delays`.

    A share of the channels, the first ones, is placed at lags where the targets depend on the inputs, and the rest on
    the grid. If no such lag is found, all are on the grid, and a warning says so.

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
        share: Share of the channels that is placed at lags that are found, in (0, 1].
        seed: Seed of the random features and of the shuffled data.
    """
    evidence = delay_evidence(inputs, targets, max_delay, seed=seed)
    if not evidence.lags:
        between = f"between {RECENT} and {max_delay - 1} steps"
        if evidence.scores.any():
            reason = (
                f"no lag {between} is significant in these data; all delays are on the grid. More data may show weaker"
            )
        else:
            reason = (
                f"no lag {between} has {FEWEST_PAIRS} pairs of an input and a target in these data; all delays are on "
                "the grid. More data may show"
            )
        warnings.warn(f"{reason} dependences", stacklevel=2)
    return evidence.delays(channels, share)


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
    if operator.index(max_delay) < 3:
        raise ValueError(f"max_delay must be at least 3, not {max_delay}")
    x, y = _data("inputs", inputs), _data("targets", targets)
    if x.shape[:2] != y.shape[:2]:
        raise ValueError(
            f"inputs and targets must agree in batch and length, not {tuple(x.shape[:2])} and {tuple(y.shape[:2])}; if "
            "a sequence has one answer, put it at the last step, and at all others a negative token, or NaN"
        )
    random = np.random.default_rng(seed)
    valid = _valid(y)
    if not bool(_valid(x).all()):
        raise ValueError(
            "inputs must be finite numbers, or tokens from 0 on; only targets may be missing. Whole numbers are "
            "tokens: pass signals as floats"
        )
    if not bool(valid.any()):
        raise ValueError("there is no target: all are NaN or negative")
    present = torch.ones_like(valid)
    inputs_as = _features(x, present, random), _kinds(x, present)
    f, kinds = (None if features is None else _whitened("inputs", features, present) for features in inputs_as)
    g = _whitened("targets", _features(y, valid, random, squares=False), valid)
    assert f is not None
    lags = min(max_delay, x.shape[1])
    search = _Search(f, f if kinds is None else kinds, g, valid, lags)
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
        e: Features of inputs by which lags are accounted for, (batch, length, r).
        g: Features of targets, (batch, length, q), zero where there is no target.
        valid: Where there is a target, (batch, length).
        lags: Number of lags, from 0 on.
    """

    def __init__(
        self,
        f: Float[Tensor, "B L p"],
        e: Float[Tensor, "B L r"],
        g: Float[Tensor, "B L q"],
        valid: Bool[Tensor, "B L"],
        lags: int,
    ) -> None:
        self._e, self._valid, self._lags = e, valid, lags
        self._size = f.shape[1] + lags
        self.rest = g
        self._places = valid.nonzero(as_tuple=True)
        self._targets = g[self._places]
        self._known: list[int] = []
        self._gram, self._moments = f.new_zeros(0, 0), f.new_zeros(0, g.shape[2])
        self._spectra = torch.fft.rfft(f, self._size, dim=1)
        known = torch.ones_like(f[..., :1])
        self._squares = torch.fft.rfft(torch.cat([f.square(), known], -1), self._size, dim=1)

    def scores(self) -> Float[Tensor, " lags"]:
        """Return the score of each lag, in standard deviations of independent data."""
        return self._scores(self.rest, self._valid)

    def scores_by_chance(self, random: np.random.Generator) -> Float[Tensor, " lags"]:
        """Return scores of inputs with the targets of other rows; of few rows, with those of other times, backwards.

        Read backwards, targets keep their own correlation and lose every lag.
        """
        rows, length, _ = self.rest.shape
        g, valid = self.rest, self._valid
        if rows < FEW_ROWS:
            shift = int(random.integers(length))
            return self._scores(g.flip(1).roll(shift, dims=1), valid.flip(1).roll(shift, dims=1))
        order = random.permutation(rows)
        following = order[(np.argsort(order) + int(random.integers(1, rows))) % rows]  # never its own targets
        others = torch.from_numpy(following)
        return self._scores(g[others], valid[others])

    def explain(self, lags: range | list[int]) -> None:
        """Subtract from the targets' features what the inputs say about them at these lags, and at those before."""
        for lag in lags:
            new = self._column(lag)
            self._known.append(lag)
            blocks = torch.cat([self._column(known).T @ new for known in self._known])  # one column at a time in memory
            above = blocks[: len(self._gram)]
            self._gram = torch.cat([torch.cat([self._gram, above.T]), blocks], 1)
            self._moments = torch.cat([self._moments, new.T @ self._targets])
        ridge = 1e-6 * (self._gram.trace() / len(self._gram) + 1e-12)
        weights = torch.linalg.solve(
            self._gram + ridge * torch.eye(len(self._gram), device=self._gram.device), self._moments
        )
        rest = self._targets.clone()
        for lag, block in zip(self._known, weights.split(self._e.shape[2]), strict=True):
            rest -= self._column(lag) @ block
        self.rest = torch.zeros_like(self.rest)
        self.rest[self._places] = rest

    def _column(self, lag: int) -> Float[Tensor, "n r"]:
        """Return what stands a lag before each target; zero before the beginning."""
        rows, times = self._places
        return torch.where((times >= lag)[:, None], self._e[rows, (times - lag).clamp(min=0)], 0.0)

    def _scores(self, g: Float[Tensor, "B L q"], valid: Bool[Tensor, "B L"]) -> Float[Tensor, " lags"]:
        C = self._correlation(torch.einsum("bwj,bwi->wij", torch.fft.rfft(g, self._size, dim=1), self._spectra.conj()))
        there = torch.fft.rfft(valid.to(g.dtype), self._size, dim=1)[..., None]
        sums = self._correlation((there * self._squares.conj()).sum(0))
        V, pairs = sums[:, :-1], sums[:, -1]
        variance = g.square().sum((0, 1)) / valid.sum()
        expected = V.clamp(min=1e-9)[..., None] * variance.clamp(min=1e-6)  # less is rounding
        count = C.shape[1] * C.shape[2]
        score = ((C.square() / expected).sum((1, 2)) - count) / math.sqrt(2 * count)
        lag = torch.arange(self._lags, device=score.device)
        return torch.where((pairs > FEWEST_PAIRS - 0.5) & (lag >= RECENT), score, 0.0)

    def _correlation(self, spectrum: Tensor) -> Tensor:
        correlation: Tensor = torch.fft.irfft(spectrum, self._size, dim=0)
        return correlation[: self._lags]


def _data(name: str, values: ArrayLike | Tensor) -> Tensor:
    """Return signals, (batch, length, features), in float64, or tokens, (batch, length)."""
    if isinstance(values, Tensor):
        data = values.detach().cpu()
    else:
        array = np.asarray(values)
        if array.dtype.kind not in "iufcb":
            raise TypeError(f"{name} must be an array or a tensor of numbers, not of {array.dtype}")
        data = torch.from_numpy(array.copy())
    if data.is_complex():
        raise TypeError(f"{name} must be real numbers or tokens, not {data.dtype}")
    if data.is_floating_point():
        if data.ndim == 2:
            data = data[..., None]
        if data.ndim != 3:
            raise ValueError(
                f"{name} must be (batch, length) or (batch, length, features), not {tuple(data.shape)}; a single "
                "series is a batch of one"
            )
        return data.double()
    if data.ndim != 2:
        raise ValueError(
            f"{name} are tokens, and must be (batch, length), not {tuple(data.shape)}; a single series is a batch of "
            "one"
        )
    return data.long()


def _valid(data: Tensor) -> Bool[Tensor, "B L"]:
    return data.isfinite().all(-1) if data.is_floating_point() else data >= 0


def _features(
    data: Tensor, valid: Bool[Tensor, "B L"], random: np.random.Generator, squares: bool = True
) -> Float[Tensor, "B L p"]:
    """Return signals, with their squares if wanted, and for each token its value and random numbers."""
    if data.is_floating_point():
        signals = _standardised(data, valid)
        return torch.cat([signals, signals.square()], -1) if squares else signals
    tokens: Int[NDArray[np.int64], "B L"] = data.clamp(min=0).numpy()
    kinds, places = np.unique(tokens, return_inverse=True)
    table = random.standard_normal((len(kinds), TOKEN_FEATURES))
    table[:, 0] = kinds
    return torch.from_numpy(table)[torch.from_numpy(places.reshape(tokens.shape))]


def _kinds(data: Tensor, valid: Bool[Tensor, "B L"]) -> Float[Tensor, "B L r"] | None:
    """Return a feature for each kind of token; None for signals, and if there are too many kinds."""
    if data.is_floating_point():
        return None
    kinds, places = torch.unique(data, return_inverse=True)
    return torch.nn.functional.one_hot(places).double() if len(kinds) <= MOST_KINDS else None


def _standardised(data: Float[Tensor, "B L p"], valid: Bool[Tensor, "B L"]) -> Float[Tensor, "B L p"]:
    """Return features of mean 0 and variance 1, whatever their scale was; zeros for a constant and for no value."""
    there = valid[..., None]
    data = torch.where(there, data, 0.0)
    data = data / data.abs().amax((0, 1)).clamp(min=1e-300)
    centred = torch.where(there, data - data.sum((0, 1)) / valid.sum(), 0.0)
    deviation = (centred.square().sum((0, 1)) / valid.sum()).sqrt()
    return torch.where(deviation > 1e-12, centred / deviation.clamp(min=1e-12), 0.0)


def _whitened(name: str, features: Float[Tensor, "B L p"], valid: Bool[Tensor, "B L"]) -> Float[Tensor, "B L r"]:
    """Return uncorrelated features of variance 1, without the mean of each time; zero where they are not valid.

    The mean of each time is that over the batch, so that what only depends on the time depends on nothing else. Few
    rows have no such mean, and lose their own.
    """
    features = _standardised(features, valid)
    weight = valid.to(features.dtype)[..., None]
    dims = (0, 1) if len(features) < FEW_ROWS else (0,)
    mean = (features * weight).sum(dims, keepdim=True) / weight.sum(dims, keepdim=True).clamp(min=1)
    centred = (features - mean) * weight
    rows = centred[valid]
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    kept = values > 1e-9
    if not bool(kept.any()):
        raise ValueError(f"{name} are constant, or the same in all rows, so that there is nothing to learn from them")
    whitening: Tensor = vectors[:, kept] / values[kept].sqrt()
    return centred @ whitening


def _threshold(largest: list[float]) -> float:
    """Return what the largest of all scores exceeds with a probability of one in a thousand, by chance."""
    return float(np.mean(largest)) + DEVIATIONS * float(np.std(largest, ddof=1))
