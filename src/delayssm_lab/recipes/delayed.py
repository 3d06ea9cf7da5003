"""The paper's runs on delayed memory, and smaller ones. The runs on the general benchmarks are in `general`.

Runs on tasks of recall, which the paper does not have, are in `recall`.

`paper` has the numbers of section 5.1 and appendix C.2 to the digit. What the paper's tables leave open is decided
here: clipping at 1, 1,024 validation samples, no dropout.

There are two versions of DS4D. `ds4d` has as many parameters as S4D. `ds4d-narrow` has the hidden size that the paper
states, 75 and 138. With the block that gives every other total of the paper to the digit, these sizes have half the
parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from typing import Literal, cast, get_args

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm_lab.models.specs import GPT2Spec, LlamaSpec, LSTMSpec, MambaSpec, Spec, StateSpaceSpec
from delayssm_lab.recipes import general, own, recall
from delayssm_lab.recipes.general import BenchmarkName
from delayssm_lab.recipes.language import LANGUAGE_MODELS, LANGUAGE_TASKS, LanguageName, reviews
from delayssm_lab.recipes.recall import RecallModel, RecallName
from delayssm_lab.tasks import kinds
from delayssm_lab.tasks.delayed import Copy, DelayedMemory, Sum, WeightedSum
from delayssm_lab.training.run import Run, Training

TaskName = Literal[
    "copy-fixed", "copy-variable", "sum-fixed", "sum-variable", "weighted-sum-fixed", "weighted-sum-variable"
]
AnyTaskName = Literal[TaskName, BenchmarkName, RecallName, LanguageName]
ModelName = Literal["ds4d", "ds4d-narrow", "s4d", "mamba", "lstm", "gpt2", "llama"]
Scale = Literal["small", "paper"]

TASKS: tuple[TaskName, ...] = get_args(TaskName)
ALL_TASKS: tuple[AnyTaskName, ...] = (*TASKS, *general.BENCHMARKS, *recall.RECALLS, *LANGUAGE_TASKS)
MODELS: tuple[ModelName, ...] = get_args(ModelName)
SCALES: tuple[Scale, ...] = get_args(Scale)
#: The learning rates that the paper tries for every model.
LEARNING_RATES = (2e-4, 1e-3)

MEMORIES: dict[TaskName, DelayedMemory] = {
    "copy-fixed": DelayedMemory(Copy(), (1024, 1024), 100),
    "copy-variable": DelayedMemory(Copy(), (1014, 1024), 100),
    "sum-fixed": DelayedMemory(Sum(), (1024, 1024), 300),
    "sum-variable": DelayedMemory(Sum(), (507, 512), 300),
    "weighted-sum-fixed": DelayedMemory(WeightedSum(), (1024, 1024), 300),
    "weighted-sum-variable": DelayedMemory(WeightedSum(), (507, 512), 300),
}


def models_of(scale: Scale) -> tuple[ModelName, ...]:
    """Return the models of a scale."""
    return MODELS if scale == "paper" else tuple(model for model in MODELS if model != "ds4d-narrow")


def task_names() -> tuple[str, ...]:
    """Return the names of all tasks, those of the script that runs included."""
    return (*ALL_TASKS, *kinds.own())


def preset(task: AnyTaskName, model: ModelName, scale: Scale) -> Run:
    """Return a run of the paper, or a smaller version of it."""
    for kind, name, known in (("task", task, task_names()), ("model", model, MODELS), ("scale", scale, SCALES)):
        if name not in known:
            raise ValueError(f"there is no {kind} {name!r}; there are {', '.join(known)}")
    if task in general.BENCHMARKS:
        if model not in ("ds4d", "s4d"):
            raise ValueError(f"{task} is a task for ds4d and s4d, not for {model}; choose one of these models")
        return {"paper": general.paper, "small": general.small}[scale](task, model)
    of_script = kinds.own().get(task)
    if scale == "paper" and (task in recall.RECALLS or task in LANGUAGE_TASKS or of_script):
        raise ValueError(
            f"{task} is not one of the paper's tasks, so it exists at small scale only; choose --scale small"
        )
    if task in LANGUAGE_TASKS:
        if model not in LANGUAGE_MODELS:
            raise ValueError(
                f"{task} is a task for {', '.join(LANGUAGE_MODELS)}, not for {model}; choose one of these models"
            )
        return reviews(model)
    if model not in models_of(scale):
        raise ValueError(f"{model} exists at the paper's size only; choose --scale paper, or another model")
    if task in recall.RECALLS:
        return recall.small(task, cast(RecallModel, model))
    if of_script:
        return own.small(of_script(), cast(RecallModel, model))
    return {"paper": paper, "small": small}[scale](cast(TaskName, task), model)


def grid(
    tasks: Iterable[AnyTaskName],
    models: Iterable[ModelName],
    scale: Scale,
    learning_rates: Iterable[float] | None = None,
    seeds: Iterable[int] = (0,),
) -> list[Run]:
    """Return a run for every combination. Without learning rates, each run has the rate of its preset."""
    runs = []
    for task, model, lr, seed in product(tasks, models, learning_rates or (None,), seeds):
        run = preset(task, model, scale)
        runs.append(replace(run, seed=seed, training=run.training if lr is None else replace(run.training, lr=lr)))
    return runs


def paper(task: TaskName, model: ModelName) -> Run:
    """Return a run of the paper on delayed memory."""
    memory = MEMORIES[task]
    # GPT-2 has parameters for each position, so that the shorter sequences of the variable sums allow a wider model.
    sums: dict[ModelName, Spec] = {
        "ds4d": _ds4d(3, 241, 128, memory),
        "ds4d-narrow": _ds4d(3, 138, 128, memory),
        "s4d": _s4d(3, 260, 128),
        "mamba": MambaSpec(d_model=168, depth=3, d_state=76),
        "lstm": LSTMSpec(d_model=177, depth=3),
        "gpt2": GPT2Spec(d_model=140 if task.endswith("variable") else 132, depth=3, heads=2),
        "llama": LlamaSpec(d_model=150, depth=3, heads=3, d_mlp=376),
    }
    spec = (_copy_models(memory) if task.startswith("copy") else sums)[model]
    training = Training(steps=2000 if task == "copy-fixed" else 8000, batch_size=64, validation_size=1024)
    return Run(task=memory, model=spec, training=training, label=_label(model, spec))


#: The tasks divided by four: lags, data, vocabulary, windows and Gaussians. There are as many different lags as in the
#: paper.
SMALL_MEMORIES: dict[TaskName, DelayedMemory] = {
    "copy-fixed": DelayedMemory(Copy(), (256, 256), 25, 8),
    "copy-variable": DelayedMemory(Copy(), (246, 256), 25, 8),
    "sum-fixed": DelayedMemory(Sum(4), (256, 256), 75, 8),
    "sum-variable": DelayedMemory(Sum(4), (123, 128), 75, 8),
    "weighted-sum-fixed": DelayedMemory(WeightedSum(4, 0.75, 2.0, 3.0), (256, 256), 75, 8),
    "weighted-sum-variable": DelayedMemory(WeightedSum(4, 0.75, 2.0, 3.0), (123, 128), 75, 8),
}


def small(task: TaskName, model: ModelName) -> Run:
    """Return a run of the paper with everything divided by four, which takes minutes on one core.

    What decides whether S4D can do a task is how many independent samples of its past a channel can hold, about N/2,
    compared with the lag. What decides for DS4D is whether delays, L/H steps apart, and main branches, about 1/p steps
    long, leave gaps between them. So all of these are made smaller together:

                                             paper                 small
        lag                                  1024; 507 to 512      256; 123 to 128
        tokens to remember                   32                    8
        window of the sums                   16                    4
        Gaussian (amplitude, centre, width)  0.75, 8, 12           0.75, 2, 3
        vocabulary, copy; sums               100; 300              25; 75
        largest data token, copy; sum        98; 18                23; 18
        largest data token, weighted sum     27                    26
        N, copy; sums                        64; 128               16; 32
        step sizes of SSMs                   1e-3 to 0.1           4e-3 to 0.4
        H of DS4D, copy; sums                133; 241              35; 62
        layers, copy; sums                   2; 3                  2; 3
        heads of GPT-2, copy; sums           4; 2                  1; 1
        heads of Llama, copy; sums           8; 3                  2; 1
        parameters, copy; sums               about 167k; 868k      about 11.7k; 57.5k
        batch                                64                    32
        steps, fixed copy; others            2,000; 8,000          2,000; 4,000

    Kept: the lag over the modes of a channel (1024/32 = 256/8), step size times lag, the spacing of delays times p
    (0.8 for copying, 0.45 for the sums, with p = 0.1), the vocabulary over H, the numbers of different lags (11 and 6),
    and the depth. Not kept: the range of lags over the lag is four times as wide; a main branch spans 1/p = 10 steps of
    256 instead of 1024; and there are fewer bits to remember.

    Parameters of all models are within 2 % of each other. A run ends early when the task is solved.
    """
    memory = SMALL_MEMORIES[task]
    steps = {"dt_min": 4e-3, "dt_max": 0.4}
    copy: dict[ModelName, Spec] = {
        "ds4d": _ds4d(2, 35, 16, memory, **steps),
        "s4d": _s4d(2, 38, 16, **steps),
        "mamba": MambaSpec(d_model=23, depth=2, d_state=12),
        "lstm": LSTMSpec(d_model=25, depth=2),
        "gpt2": GPT2Spec(d_model=16, depth=2, heads=1),
        "llama": LlamaSpec(d_model=20, depth=2, heads=2, d_mlp=62),
    }
    sums: dict[ModelName, Spec] = {
        "ds4d": _ds4d(3, 62, 32, memory, **steps),
        "s4d": _s4d(3, 67, 32, **steps),
        "mamba": MambaSpec(d_model=43, depth=3, d_state=19),
        "lstm": LSTMSpec(d_model=45, depth=3),
        "gpt2": GPT2Spec(d_model=36 if task.endswith("variable") else 34, depth=3, heads=1),
        "llama": LlamaSpec(d_model=36, depth=3, heads=1, d_mlp=112),
    }
    spec = (copy if task.startswith("copy") else sums)[model]
    training = Training(
        steps=2000 if task == "copy-fixed" else 4000,
        batch_size=32,
        evaluate_every=100,
        checkpoint_every=500,
        validation_size=512,
        target=0.999,
    )
    return Run(task=memory, model=spec, training=training, label=_label(model, spec))


def _copy_models(memory: DelayedMemory) -> dict[ModelName, Spec]:
    """Return the models for copying."""
    return {
        "ds4d": _ds4d(2, 133, 64, memory),
        "ds4d-narrow": _ds4d(2, 75, 64, memory),
        "s4d": _s4d(2, 143, 64),
        "mamba": MambaSpec(d_model=88, depth=2, d_state=48),
        "lstm": LSTMSpec(d_model=96, depth=2),
        "gpt2": GPT2Spec(d_model=60, depth=2, heads=4),
        "llama": LlamaSpec(d_model=80, depth=2, heads=8, d_mlp=213),
    }


def _ds4d(depth: int, d_model: int, d_state: int, memory: DelayedMemory, **options: float) -> StateSpaceSpec:
    layer = DS4DConfig(d_model, d_state, memory.max_length, **options)  # type: ignore[arg-type]
    return StateSpaceSpec(depth=depth, block=BlockConfig(layer=layer))


def _s4d(depth: int, d_model: int, d_state: int, **options: float) -> StateSpaceSpec:
    layer = S4DConfig(d_model, d_state, **options)  # type: ignore[arg-type]
    return StateSpaceSpec(depth=depth, block=BlockConfig(layer=layer))


def _label(model: ModelName, spec: Spec) -> str:
    return "DS4D narrow" if model == "ds4d-narrow" else spec.family
