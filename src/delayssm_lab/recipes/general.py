"""The paper's runs on the general benchmarks (section 5.3, appendix C.4), and smaller ones for a laptop.

`paper` has the numbers of the paper's table to the digit. What the table leaves to "the S4D setup" follows S4D's
recipes: dynamics that all channels share (n_ssm = 1), warm-up, dropout, step sizes, learning rates of S4D, weight decay
of C and D, no clipping. What neither states is decided here: no dropout, no warm-up, no weight decay of r, theta and
nu_tau.

That dynamics are shared is not in the paper's text, but follows from its sizes. It chooses the hidden size of DS4D so
that it has as many parameters, within about 1 %, as S4D with 128, 256 or 512 channels. With shared dynamics its sizes
do so for every task but Retrieval, whose head is not described; with dynamics for each channel, most do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, get_args

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm.layers.norms import Norm
from delayssm_lab.models.specs import StateSpaceSpec, matched
from delayssm_lab.tasks.images import GrayCIFAR, Pathfinder, SequentialMNIST
from delayssm_lab.tasks.signals import BIDMC, SpeechCommands
from delayssm_lab.tasks.task import Task
from delayssm_lab.tasks.texts import ListOps, Retrieval, Text
from delayssm_lab.training.run import Run, Training
from delayssm_lab.training.schedules import Cosine, MultiStep, Schedule

BenchmarkName = Literal[
    "smnist",
    "sc-ar",
    "sc-bi",
    "bidmc-rr",
    "bidmc-hr",
    "bidmc-spo2",
    "listops",
    "text",
    "retrieval",
    "image",
    "pathfinder",
    "path-x",
]
BENCHMARKS: tuple[BenchmarkName, ...] = get_args(BenchmarkName)
StateSpaceName = Literal["ds4d", "s4d"]

#: Hidden sizes of S4D: those of its own recipes, and of sMNIST, which has none, that of the other signals.
S4D_WIDTHS: dict[BenchmarkName, int] = {
    "smnist": 128,
    "sc-ar": 128,
    "sc-bi": 128,
    "bidmc-rr": 128,
    "bidmc-hr": 128,
    "bidmc-spo2": 128,
    "listops": 128,
    "text": 256,
    "retrieval": 256,
    "image": 512,
    "pathfinder": 256,
    "path-x": 256,
}


def _run(
    task: Task,
    samples: int,
    depth: int,
    width: int,
    d_state: int,
    branch_fraction: float,
    phase: float,
    norm: Norm,
    prenorm: bool,
    batch: int,
    lr: float,
    dt_lr: float,
    weight_decay: float,
    epochs: int,
    schedule: Schedule,
    **options: Any,
) -> Run:
    """Return a row of the paper's table as a run of DS4D.

    `samples` is the number of published training samples. The arguments after it are in the order of the table.
    `options` are further options of the layer: those of S4D's recipe, and the initial delays if they are not a grid.
    """
    defaults = {"init": "inv", "n_ssm": 1, "bidirectional": True}
    layer = DS4DConfig(
        width,
        d_state,
        task.max_length,
        branch_fraction=branch_fraction,
        phase=phase,
        **{**defaults, **options},
    )
    once_an_epoch = math.ceil(samples / batch)
    training = Training(
        epochs=epochs,
        batch_size=batch,
        lr=lr,
        dt_lr=dt_lr,
        weight_decay=weight_decay,
        decay_output=True,
        schedule=schedule,
        clip=None,
        evaluate_every=once_an_epoch,
        checkpoint_every=min(once_an_epoch, 1000),
        validation_size=None,
    )
    spec = StateSpaceSpec(depth=depth, block=BlockConfig(layer=layer, norm=norm, prenorm=prenorm))
    return Run(task=task, model=spec, training=training)


_PI = math.pi
_STEPS = MultiStep(at=(0.2, 0.4, 0.6, 0.8), decay=0.5)
# fmt: off
PAPER: dict[BenchmarkName, Run] = {
    # The delays of the two image tasks start at one row of the image.
    "smnist": _run(SequentialMNIST(), 54_000, 6, 115, 64, 0.015, 0.0, "batch", True, 64, 1e-3, 1e-4, 0.05, 20,
                   Cosine(), delays=28.0, bidirectional=False),
    "sc-ar": _run(SpeechCommands(pooling="last"), 84_843, 6, 114, 64, 0.1, _PI, "batch", True, 16, 1e-2, 1e-4, 0.05, 40,
                  Cosine(warmup=1000), bidirectional=False),
    "sc-bi": _run(SpeechCommands(), 84_843, 6, 116, 64, 0.1, _PI, "batch", True, 16, 1e-2, 1e-4, 0.05, 40,
                  Cosine(warmup=1000)),
    "bidmc-rr": _run(BIDMC("RR"), 5_510, 6, 101, 256, 0.1, _PI, "layer", True, 32, 1e-2, 1e-4, 0.05, 500, _STEPS),
    "bidmc-hr": _run(BIDMC("HR"), 5_565, 6, 101, 256, 0.05, _PI, "batch", True, 32, 1e-2, 1e-4, 0.05, 500, _STEPS),
    "bidmc-spo2": _run(BIDMC("SpO2"), 5_565, 6, 101, 256, 0.1, _PI, "batch", True, 32, 1e-2, 1e-4, 0.05, 500, _STEPS),
    "listops": _run(ListOps(), 96_000, 8, 116, 64, 0.1, _PI, "batch", False, 50, 1e-2, 5e-4, 0.05, 40,
                    Cosine(warmup=1000)),
    "text": _run(Text(), 22_500, 6, 242, 64, 0.1, _PI, "batch", True, 16, 1e-2, 1e-4, 0.05, 32, Cosine(warmup=1000)),
    "retrieval": _run(Retrieval(), 147_086, 6, 242, 64, 0.1, _PI, "batch", True, 64, 1e-2, 1e-4, 0.05, 20,
                      Cosine(warmup=2500)),
    "image": _run(GrayCIFAR(), 45_000, 6, 497, 64, 0.01, 0.0, "layer", False, 50, 1e-2, 1e-4, 0.05, 200,
                  Cosine(warmup=900), dropout=0.1, delays=32.0),
    "pathfinder": _run(Pathfinder(), 160_000, 6, 243, 64, 0.1, _PI, "batch", True, 64, 4e-3, 5e-4, 0.03, 200,
                       Cosine(warmup=2500)),
    "path-x": _run(Pathfinder(128), 160_000, 6, 243, 64, 0.1, _PI, "batch", True, 16, 5e-4, 1e-4, 0.05, 50,
                   Cosine(warmup=50_000), dt_min=1e-4),
}
# fmt: on


@cache
def paper(name: BenchmarkName, model: StateSpaceName) -> Run:
    """Return a run of the paper: DS4D, or S4D at the size of its own recipes."""
    return PAPER[name] if model == "ds4d" else _as_s4d(PAPER[name], S4D_WIDTHS[name])


@dataclass(frozen=True)
class Reduced:
    """The settings of a small run that differ from the paper's.

    Args:
        task: Reduced task.
        steps: Number of optimiser steps.
        batch: Number of samples per step.
        differs: What differs from the run of the paper besides the model, for tables.
        width: Number of channels of DS4D.
        test_size: Largest number of test samples. None means all.
    """

    task: Task
    steps: int
    batch: int
    differs: str
    width: int = 48
    test_size: int | None = None


#: Ten of the 35 words of Speech Commands.
WORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")
_SPEECH = "10 words of 35, 2,200 clips; means of 8 samples, so 2,000 times of 16,000; 12 epochs of 40"
_BIDMC = "means of 4 samples, so 1,000 times of 4,000; 4 epochs of 500"
SMALL: dict[BenchmarkName, Reduced] = {
    "smnist": Reduced(SequentialMNIST(), 1400, 32, "0.8 epochs of 20"),
    "sc-ar": Reduced(SpeechCommands(WORDS, pooling="last", every=8), 2400, 8, _SPEECH),
    "sc-bi": Reduced(SpeechCommands(WORDS, every=8), 2400, 8, _SPEECH),
    "bidmc-rr": Reduced(BIDMC("RR", every=4), 1500, 16, _BIDMC),
    "bidmc-hr": Reduced(BIDMC("HR", every=4), 1500, 16, _BIDMC),
    "bidmc-spo2": Reduced(BIDMC("SpO2", every=4), 1500, 16, _BIDMC),
    "listops": Reduced(ListOps(), 1200, 16, "10,000 samples of 96,000, 2 epochs of 40", width=56),
    "text": Reduced(
        Text(1024),
        2000,
        16,
        "1,024 characters of 4,096; 1.4 epochs of 32; 5,000 test reviews of 25,000",
        test_size=5000,
    ),
    "retrieval": Reduced(
        Retrieval(512), 1000, 32, "made-up documents instead of AAN, 512 characters of 4,000", width=56
    ),
    "image": Reduced(GrayCIFAR(), 1200, 32, "10,000 images of 50,000, 4 epochs of 200"),
    "pathfinder": Reduced(
        Pathfinder(20, 3), 1500, 64, "20 x 20 pixels, paths of 3 paddles, instead of 32 x 32 and 14; 1.2 epochs of 200"
    ),
    "path-x": Reduced(Pathfinder(128, 6), 500, 4, "paths of 6 paddles instead of 14, 2,000 images of 160,000"),
}


@cache
def small(name: BenchmarkName, model: StateSpaceName) -> Run:
    """Return a small version of a run of the paper, which takes minutes on two cores.

    All runs have 4 blocks, H 48 or 56 (DS4D), N 32 and shared dynamics; the learning rate 4e-3 with cosine decay after
    100 steps of warm-up; clipping at 1; no dropout. Norms, delays, phases and weight decay are the paper's. `SMALL`
    says what else differs for each task.

    These settings were chosen in a few trials of DS4D, for SC of both models. S4D uses them unchanged, with the small
    learning rates of its recipes for step sizes and dynamics.
    """
    reduced, full = SMALL[name], PAPER[name]
    assert isinstance(full.model, StateSpaceSpec)
    layers = full.model.with_layer(d_model=reduced.width, d_state=32, max_delay=reduced.task.max_length, dropout=0.0)
    training = Training(
        steps=reduced.steps,
        batch_size=reduced.batch,
        lr=4e-3,
        dt_lr=full.training.dt_lr,
        weight_decay=full.training.weight_decay,
        decay_output=True,
        schedule=Cosine(warmup=100),
        evaluate_every=math.ceil(reduced.steps / 14),
        validation_size=500,
        test_size=reduced.test_size,
    )
    run = Run(task=reduced.task, model=replace(layers, depth=4), training=training)
    if model == "ds4d":
        return run
    s4d = _as_s4d(run, reduced.width)
    assert isinstance(s4d.model, StateSpaceSpec)
    return replace(s4d, model=matched(s4d.model, run.parameters(), run.task.build))


def _as_s4d(run: Run, width: int) -> Run:
    """Return a run of DS4D as a run of S4D with a given width. Its own rates of step sizes and dynamics are S4D's."""
    spec = run.model
    assert isinstance(spec, StateSpaceSpec)
    layer = S4DConfig(**{field.name: getattr(spec.layer, field.name) for field in fields(S4DConfig)})
    s4d = replace(spec, block=replace(spec.block, layer=replace(layer, d_model=width)))
    return replace(run, model=s4d, training=replace(run.training, dt_lr=None))
