"""All models on tasks of recall, where delays should be weak, and layers that add what DS4D lacks for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from delayssm_lab.recipes.recall import RECALLS, RecallModel, hybrids, small
from delayssm_lab.report import figures, page, tables
from delayssm_lab.report.collect import Results, group
from delayssm_lab.report.drawing import png
from delayssm_lab.studies.contest import Contest, Contests, records_of_all
from delayssm_lab.studies.trained import of_this_code
from delayssm_lab.study import File, Places

#: Models, cheap ones first.
MODELS: tuple[RecallModel, ...] = ("ds4d", "s4d", "lstm", "gpt2", "llama", "mamba")


def recall_contests() -> tuple[Contest, ...]:
    """Return a contest for each model and task."""
    return tuple(Contest(small(task, model)) for model in MODELS for task in RECALLS)


def hybrid_contests() -> tuple[Contest, ...]:
    """Return a contest for each DS4D with additions and task that it is tried on."""
    return tuple(Contest(run) for run in hybrids())


@dataclass(frozen=True)
class Recall(Contests):
    """Validation accuracy of all models on associative recall and selective copying."""

    name = "recall"
    title = "Six models on associative recall and selective copying"

    contests: tuple[Contest, ...] = field(default_factory=recall_contests)
    others: tuple[Contest, ...] = ()

    def files(self, places: Places) -> Iterable[File]:
        find = of_this_code(places)
        yield "rates.md", self.rates(find).encode()
        if records := self.records(find):
            results = group([*records, *records_of_all(self.others, find)])
            yield "table.md", table(results).encode()
            yield "curves.png", png(figures.learning_curves(results))


@dataclass(frozen=True)
class RecallLayers(Recall):
    """Validation accuracy of DS4D with additions, beside the models of `Recall` as far as those are trained."""

    name = "recall-layers"
    title = "DS4D with a short convolution, a gate or a delta memory, on tasks of recall"

    contests: tuple[Contest, ...] = field(default_factory=hybrid_contests)
    others: tuple[Contest, ...] = field(default_factory=recall_contests)


def table(results: Results) -> str:
    """Return the best validation accuracies, a row for each model, below the chance level of each task."""
    chance = ["chance level", *(f"{task.chance_level():.2f}" for task in results.tasks.values())]
    rows = [
        [model, *(page.text_or_blank(results.cells.get((task, model))) for task in results.tasks)]
        for model in results.models
    ]
    return tables.markdown(["model", *results.tasks], [chance, *rows])
