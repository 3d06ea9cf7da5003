"""What a causal classifier of speech thinks while it listens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.general import mini
from delayssm_lab.report import listening as listen
from delayssm_lab.report.drawing import png
from delayssm_lab.report.page import facts
from delayssm_lab.studies.study import File
from delayssm_lab.studies.trained import Trained
from delayssm_lab.tasks.task import Split
from delayssm_lab.training.run import Run


def mini_run() -> tuple[Run, ...]:
    """SC (Bi.) at mini scale, by a model that looks back only.

    It learns more from few clips than the model of SC (AR) does, which answers from the last time instead of from the
    mean over all so far.
    """
    run = mini("sc-bi", "ds4d")
    assert isinstance(run.model, StateSpaceSpec)
    return (replace(run, model=run.model.with_layer(bidirectional=False), label="DS4D, causal"),)


@dataclass(frozen=True)
class Listening(Trained):
    """The first test clip of some words, heard in pieces of a sixteenth of a second."""

    name = "listening"
    title = "A word, and what DS4D takes it for while it is spoken (Speech Commands, mini scale)"

    runs: tuple[Run, ...] = field(default_factory=mini_run)
    root: str = "general"
    words: tuple[str, ...] = ("left", "stop", "yes")

    def files(self, work: Path) -> Iterable[File]:
        yield "runs.json", facts(self.found(work))
        for word in self.words:
            listener = listen.Listener(work / self.root / self.runs[0].name)
            task = listener.task
            clips = task.split(Split.TEST)[task.targets(Split.TEST) == task.words.index(word)]
            clip = task.prepared()["test_x"][clips[0]]
            heard = torch.cat([listener.hear(chunk) for chunk in listen.chunks(clip, 1000)])
            yield f"{word}.png", png(listen.figure(clip, heard.numpy(), task.words))
