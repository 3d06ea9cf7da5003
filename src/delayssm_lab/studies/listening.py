"""Running predictions of a causal speech classifier while words are spoken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from delayssm_lab.listener import Listener, chunks
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.general import mini
from delayssm_lab.report.drawing import png
from delayssm_lab.report.figures import running_predictions
from delayssm_lab.report.page import runs_json
from delayssm_lab.studies.trained import Trained
from delayssm_lab.study import File
from delayssm_lab.tasks.task import Split
from delayssm_lab.training.run import Run

#: Samples of a chunk: a sixteenth of a second.
CHUNK = 1000


def mini_run() -> tuple[Run, ...]:
    """Return the mini run of SC (Bi.) with a causal model.

    From few clips it learns more than the model of SC (AR), which predicts from the last step instead of from the mean
    over all steps so far.
    """
    run = mini("sc-bi", "ds4d")
    assert isinstance(run.model, StateSpaceSpec)
    return (replace(run, model=run.model.with_layer(bidirectional=False), label="DS4D, causal"),)


@dataclass(frozen=True)
class Listening(Trained):
    """Predictions for the first test clip of some words, which the model hears in chunks."""

    name = "listening"
    title = "Running predictions of a causal DS4D on spoken words (Speech Commands, mini scale)"

    runs: tuple[Run, ...] = field(default_factory=mini_run)
    root: str = "general"
    words: tuple[str, ...] = ("left", "stop", "yes")

    def files(self, work: Path) -> Iterable[File]:
        yield "runs.json", runs_json(self.collected(work))
        for word in self.words:
            listener = Listener(work / self.root / self.runs[0].name)
            task = listener.task
            clips = task.split(Split.TEST)[task.targets(Split.TEST) == task.words.index(word)]
            clip = task.prepared()["test_x"][clips[0]]
            probabilities = torch.cat([listener.hear(chunk) for chunk in chunks(clip, CHUNK)])
            yield f"{word}.png", png(running_predictions(clip, probabilities.numpy(), task.words))
