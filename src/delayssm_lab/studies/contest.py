"""Contests: the same chance for every model on a task, at the best of several learning rates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.delayed import LEARNING_RATES
from delayssm_lab.studies.trained import Finder, Shelf, of_this_code
from delayssm_lab.study import Places
from delayssm_lab.training.run import Run

#: The learning rates that are tried for every model: the paper's two, and a higher one.
RATES = (*LEARNING_RATES, 4e-3)
SEEDS = (0, 1, 2)
#: Rates whose metrics after the screening differ by less than this are compared again after a whole run.
MARGIN = 0.01


def later_studies_look_at(run: Run) -> bool:
    """Return whether a run is the first of a state-space model."""
    return run.seed == 0 and isinstance(run.model, StateSpaceSpec)


SCREENING = Shelf("small-screening")
SMALL = Shelf("small", later_studies_look_at)

#: A run and where it is kept.
Shelved = tuple[Shelf, Run]


@dataclass(frozen=True)
class Contest:
    """One model on one task.

    Each learning rate is screened with one seed for a quarter of the steps. The best rate is run with all seeds. If
    several rates are about equally good after a quarter, the first seed is run to the end with each of them, and the
    best of these is taken.

    Args:
        run: A run of full length; its learning rate and seed do not matter.
        rates: Learning rates to try.
        seeds: Seeds to run with the best rate.
        further: Learning rates to try, too, the next one as long as the best one so far is the lowest or the highest.
        short_shelf: Where the screening is kept.
        whole_shelf: Where the runs of full length are kept.
    """

    run: Run
    rates: tuple[float, ...] = RATES
    seeds: tuple[int, ...] = SEEDS
    further: tuple[float, ...] = ()
    short_shelf: Shelf = SCREENING
    whole_shelf: Shelf = SMALL

    def screening(self, find: Finder) -> list[Run]:
        """Return the short runs, one for each learning rate that is to be tried as far as is known."""
        rates = sorted(self.rates)
        while True:
            runs = [self._short(rate) for rate in rates]
            screened, missing = _compare(self.short_shelf, runs, find)
            if missing:
                return runs
            best = max(rates, key=lambda rate: screened[rate])
            ends = [rate for rate in self.further if (best == rates[0] > rate) or (best == rates[-1] < rate)]
            if not ends:
                return runs
            rates = sorted([*rates, min(ends, key=lambda rate: abs(math.log(rate / best)))])

    def finals(self, find: Finder) -> list[Run]:
        """Return the runs with the best learning rate; none while that is not known."""
        rate, _ = self._best_rate(find)
        return [] if rate is None else [self._whole(rate, seed) for seed in self.seeds]

    def missing(self, find: Finder) -> list[Shelved]:
        """Return the runs to train next; none when the contest is over."""
        rate, missing = self._best_rate(find)
        if rate is None:
            return missing
        return [(self.whole_shelf, run) for run in self.finals(find) if find(self.whole_shelf, run) is None]

    def _best_rate(self, find: Finder) -> tuple[float | None, list[Shelved]]:
        """Return the best learning rate, or None and the runs that are still needed to know it."""
        screened, missing = _compare(self.short_shelf, self.screening(find), find)
        if missing:
            return None, missing
        contenders = [rate for rate, merit in screened.items() if merit > max(screened.values()) - MARGIN]
        if len(contenders) == 1:
            return contenders[0], []
        whole, missing = _compare(self.whole_shelf, [self._whole(rate, self.seeds[0]) for rate in contenders], find)
        return (None, missing) if missing else (max(whole, key=lambda rate: whole[rate]), [])

    def _short(self, rate: float) -> Run:
        steps = self.run.training.steps
        assert steps is not None
        return replace(self.run, seed=self.seeds[0], training=replace(self.run.training, steps=steps // 4, lr=rate))

    def _whole(self, rate: float, seed: int) -> Run:
        return replace(self.run, seed=seed, training=replace(self.run.training, lr=rate))


def _compare(shelf: Shelf, runs: Sequence[Run], find: Finder) -> tuple[dict[float, float], list[Shelved]]:
    """Return the merit of the best metric by learning rate, and the runs that are not finished."""
    records = {run: find(shelf, run) for run in runs}
    merits = {
        run.training.lr: run.task.metric.merit(record.best) for run, record in records.items() if record is not None
    }
    return merits, [(shelf, run) for run, record in records.items() if record is None]


def hold(contests: Sequence[Contest], places: Places) -> None:
    """Train the runs of several contests until all of them are over."""
    find = of_this_code(places)
    while missing := [shelved for contest in contests for shelved in contest.missing(find)]:
        for shelf in dict.fromkeys(shelf for shelf, _ in missing):
            shelf.train([run for other, run in missing if other == shelf], places)
