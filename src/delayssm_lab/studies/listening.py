"""Running predictions of a causal speech classifier while words are spoken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import torch

from delayssm_lab.listener import Listener, chunks
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.general import small
from delayssm_lab.report.drawing import png
from delayssm_lab.report.figures import running_predictions
from delayssm_lab.studies.trained import Shelf, Trained, every_run
from delayssm_lab.study import File, Places
from delayssm_lab.tasks.task import Split
from delayssm_lab.training.run import Run

LISTENER = Shelf("listening", every_run)
#: Samples of a chunk: a sixteenth of a second.
CHUNK = 1000


def small_run() -> tuple[Run, ...]:
    """Return the small run of SC (Bi.) with a causal model.

    From few clips it learns more than the model of SC (AR), which predicts from the last step instead of from the mean
    over all steps so far.
    """
    run = small("sc-bi", "ds4d")
    assert isinstance(run.model, StateSpaceSpec)
    return (replace(run, model=run.model.with_layer(bidirectional=False), label="DS4D, causal"),)


@dataclass(frozen=True)
class Listening(Trained):
    """Predictions for the first test clip of some words, which the model hears in chunks."""

    name = "listening"
    title = "Running predictions of a causal DS4D on spoken words (Speech Commands, small scale)"

    runs: tuple[Run, ...] = field(default_factory=small_run)
    shelf: Shelf = LISTENER
    words: tuple[str, ...] = ("left", "stop", "yes")

    def files(self, places: Places) -> Iterable[File]:
        run = self.runs[0]
        model = self.shelf.store(places).model(run)
        for word in self.words:
            listener = Listener(model, run)
            task = listener.task
            clips = task.split(Split.TEST)[task.targets(Split.TEST) == task.words.index(word)]
            clip = task.prepared()["test_x"][clips[0]]
            probabilities = torch.cat([listener.hear(chunk) for chunk in chunks(clip, CHUNK)])
            yield f"{word}.png", png(running_predictions(clip, probabilities.numpy(), task.words))
