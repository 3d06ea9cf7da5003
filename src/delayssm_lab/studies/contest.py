"""Contests: the same chance for every model on a task, at the best of several learning rates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.delayed import LEARNING_RATES
from delayssm_lab.studies.trained import Finder, Shelf
from delayssm_lab.training.run import Run

#: The learning rates that are tried for every model: the paper's two, and a higher one.
RATES = (*LEARNING_RATES, 4e-3)
SEEDS = (0, 1, 2)
#: Rates whose accuracies after the screening differ by less than this are compared again after a whole run.
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
    """

    run: Run
    rates: tuple[float, ...] = RATES
    seeds: tuple[int, ...] = SEEDS

    def screening(self) -> list[Run]:
        """Return the short runs, one for each learning rate."""
        steps = self.run.training.steps
        assert steps is not None
        quarter = replace(self.run.training, steps=steps // 4)
        return [replace(self.run, seed=self.seeds[0], training=replace(quarter, lr=rate)) for rate in self.rates]

    def finals(self, find: Finder) -> list[Run]:
        """Return the runs with the best learning rate; none while that is not known."""
        rate, _ = self._best_rate(find)
        return [] if rate is None else [self._whole(rate, seed) for seed in self.seeds]

    def missing(self, find: Finder) -> list[Shelved]:
        """Return the runs to train next; none when the contest is over."""
        rate, missing = self._best_rate(find)
        if rate is None:
            return missing
        return [(SMALL, run) for run in self.finals(find) if find(SMALL, run) is None]

    def _best_rate(self, find: Finder) -> tuple[float | None, list[Shelved]]:
        """Return the best learning rate, or None and the runs that are still needed to know it."""
        screened, missing = _compare(SCREENING, self.screening(), find)
        if missing:
            return None, missing
        contenders = [rate for rate, accuracy in screened.items() if accuracy > max(screened.values()) - MARGIN]
        if len(contenders) == 1:
            return contenders[0], []
        whole, missing = _compare(SMALL, [self._whole(rate, self.seeds[0]) for rate in contenders], find)
        return (None, missing) if missing else (max(whole, key=lambda rate: whole[rate]), [])

    def _whole(self, rate: float, seed: int) -> Run:
        return replace(self.run, seed=seed, training=replace(self.run.training, lr=rate))


def _compare(shelf: Shelf, runs: Sequence[Run], find: Finder) -> tuple[dict[float, float], list[Shelved]]:
    """Return the best accuracy by learning rate, and the runs that are not finished."""
    records = {run: find(shelf, run) for run in runs}
    accuracies = {run.training.lr: record.best for run, record in records.items() if record is not None}
    return accuracies, [(shelf, run) for run, record in records.items() if record is None]
