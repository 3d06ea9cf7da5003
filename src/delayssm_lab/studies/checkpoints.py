"""Studies of the weights of trained models, at small scale and at the paper's."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from delayssm_lab.recipes.delayed import TASKS, ModelName, preset
from delayssm_lab.studies.contest import Contest, hold_in_turn
from delayssm_lab.studies.synthetic import PAPER_SHELF, paper_runs
from delayssm_lab.studies.trained import Finder, OfRuns, Shelf, of_this_code
from delayssm_lab.study import Places
from delayssm_lab.training.record import Record
from delayssm_lab.training.run import Run
from delayssm_lab.training.store import Store


@dataclass(frozen=True)
class Checkpoint:
    """The best checkpoint of a finished run.

    Args:
        run: The run.
        source: Kind of the run, for tables.
        store: Where the weights are.
    """

    run: Run
    source: str
    store: Store

    def model(self) -> nn.Module:
        """Return the model in evaluation mode."""
        return self.store.model(self.run)


@dataclass(frozen=True)
class OfCheckpoints(OfRuns):
    """A study of the first seed of some models: on all tasks at small scale, and what there is at the paper's scale.

    Args:
        models: Models to look at.
        contests: Contests that train the small runs; None: those of the study of all models.
        full_size: Runs at the paper's size.
    """

    models: tuple[ModelName, ...] = ("ds4d", "s4d")
    contests: tuple[Contest, ...] | None = None
    full_size: tuple[Run, ...] | None = None

    def steps(self, find: Finder) -> tuple[list[Record], int]:
        return [record for _, _, record in self._found(find)], len(self._contests()) + len(self._full_size())

    def run(self, places: Places) -> None:
        hold_in_turn(self._contests(), places)
        PAPER_SHELF.train(self._full_size(), places)

    def checkpoints(self, places: Places) -> list[Checkpoint]:
        """Return the checkpoints that there are."""
        found = self._found(of_this_code(places))
        return [Checkpoint(record.run, source, shelf.store(places)) for shelf, source, record in found]

    def _contests(self) -> tuple[Contest, ...]:
        if self.contests is not None:
            return self.contests
        return tuple(Contest(preset(task, model, "small")) for model in self.models for task in TASKS)

    def _full_size(self) -> tuple[Run, ...]:
        if self.full_size is not None:
            return self.full_size
        families = {preset(TASKS[0], model, "paper").model_label for model in self.models}
        return tuple(run for run in paper_runs() if run.model_label in families and run.seed == 0)

    def _found(self, find: Finder) -> list[tuple[Shelf, str, Record]]:
        runs = [
            (contest.whole_shelf, "small run", run) for contest in self._contests() for run in contest.finals(find)[:1]
        ]
        runs += [(PAPER_SHELF, "full-size run", run) for run in self._full_size()]
        records = [(shelf, source, find(shelf, run)) for shelf, source, run in runs]
        return [(shelf, source, record) for shelf, source, record in records if record is not None]
