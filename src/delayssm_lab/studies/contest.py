"""Contests: the same chance for every model on a task, at the best of several learning rates; and studies of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.delayed import LEARNING_RATES
from delayssm_lab.report import tables
from delayssm_lab.report.collect import group
from delayssm_lab.studies.trained import Finder, OfRuns, Shelf, of_this_code, records_of, total_seconds
from delayssm_lab.study import Places
from delayssm_lab.training.record import Record
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
SMALL_SHELF = Shelf("small", later_studies_look_at)

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
    whole_shelf: Shelf = SMALL_SHELF

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

    def deciding(self, find: Finder) -> list[Run]:
        """Return the whole runs that decide between rates that the screening has found about equally good, if any."""
        rates, _ = self._contenders(find)
        return [self._whole(rate, self.seeds[0]) for rate in rates] if len(rates) > 1 else []

    def finals(self, find: Finder) -> list[Run]:
        """Return the runs with the best learning rate; none while that is not known."""
        rate, _ = self._best_rate(find)
        return [] if rate is None else [self._whole(rate, seed) for seed in self.seeds]

    def screened(self, find: Finder) -> list[Record]:
        """Return the records of the short runs."""
        return records_of(self.short_shelf, self.screening(find), find)

    def records(self, find: Finder) -> list[Record]:
        """Return the records of the runs with the best learning rate."""
        return records_of(self.whole_shelf, self.finals(find), find)

    def missing(self, find: Finder) -> list[Shelved]:
        """Return the runs to train next; none when the contest is over."""
        rate, missing = self._best_rate(find)
        if rate is None:
            return missing
        return [(self.whole_shelf, run) for run in self.finals(find) if find(self.whole_shelf, run) is None]

    def _contenders(self, find: Finder) -> tuple[list[float], list[Shelved]]:
        """Return the best rates of the screening, or none and the runs that are still needed to know them."""
        screened, missing = _compare(self.short_shelf, self.screening(find), find)
        if missing:
            return [], missing
        return [rate for rate, merit in screened.items() if merit > max(screened.values()) - MARGIN], []

    def _best_rate(self, find: Finder) -> tuple[float | None, list[Shelved]]:
        """Return the best learning rate, or None and the runs that are still needed to know it."""
        rates, missing = self._contenders(find)
        if missing or len(rates) == 1:
            return (None, missing) if missing else (rates[0], [])
        whole, missing = _compare(self.whole_shelf, [self._whole(rate, self.seeds[0]) for rate in rates], find)
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


def hold_in_turn(contests: Sequence[Contest], places: Places) -> None:
    """Hold the contests of one model after the other, so that the first models are finished first."""
    for model in dict.fromkeys(contest.run.model_label for contest in contests):
        hold([contest for contest in contests if contest.run.model_label == model], places)


def records_of_all(contests: Sequence[Contest], find: Finder) -> list[Record]:
    """Return the records of the runs with the best learning rates."""
    return [record for contest in contests for record in contest.records(find)]


@dataclass(frozen=True)
class Contests(OfRuns):
    """A study of contests. Its steps are the short runs, and those with the best learning rates.

    Args:
        contests: A contest for each model and task.
    """

    contests: tuple[Contest, ...]

    def steps(self, find: Finder) -> tuple[list[Record], int]:
        total = sum(len(contest.screening(find)) + len(contest.seeds) for contest in self.contests)
        return [*self.screened(find), *self.records(find)], total

    def run(self, places: Places) -> None:
        hold_in_turn(self.contests, places)

    def seconds(self, places: Places) -> float:
        find = of_this_code(places)
        deciding = (
            record
            for contest in self.contests
            for record in records_of(contest.whole_shelf, contest.deciding(find), find)
        )
        return total_seconds({record.run: record for record in (*self.steps(find)[0], *deciding)}.values())

    def screened(self, find: Finder) -> list[Record]:
        """Return the records of the short runs."""
        return [record for contest in self.contests for record in contest.screened(find)]

    def records(self, find: Finder) -> list[Record]:
        """Return the records of the runs with the best learning rates."""
        return records_of_all(self.contests, find)

    def rates(self, find: Finder) -> str:
        """Return a table of the best metrics in the screening; bold ones are at the rates that were chosen."""
        results = group(self.screened(find))
        chosen = {_place(run) for contest in self.contests for run in contest.finals(find)[:1]}
        texts = {_place(record.run): f"{record.best:.2f}" for record in results.records}
        cells = {place: f"**{text}**" if place in chosen else text for place, text in texts.items()}
        rows = []
        for model in results.models:
            for rate in sorted({rate for other, rate, _ in cells if other == model}):
                row = (cells.get((model, rate, task), "") for task in results.tasks)
                rows.append([model, f"{rate:g}", *row])
        return tables.markdown(["model", "learning rate", *results.tasks], rows)


def _place(run: Run) -> tuple[str, float, str]:
    """Return the row and column of a run in the table of learning rates."""
    return run.model_label, run.training.lr, run.task.label
