"""Runs on tasks of recall, which are not the paper's: associative recall and selective copying at small scale.

Zoology trains on associative recall with a vocabulary of 8,192, 100,000 samples for 64 epochs, four learning rates and
widths of 64 to 512. The Mamba paper has selective copying with 16 data tokens in a context of 4,096 and 400,000 steps.
That takes GPUs. What is cut here so that all models, rates and seeds take some hours on two cores:

                               published                small
    recall-64, recall-128
        tokens, pairs          (64, 4), (128, 8), ...   (64, 4), (128, 8)
        vocabulary             8,192                    twice the tokens: 128, 256
        samples                100,000, 64 times each   256,000, once each
    selective-copying
        context, data tokens   4,096, 16                128, 8
        vocabulary             16                       16
        steps of 64 samples    400,000                  4,000

Keys and values, gaps and places are drawn as published. Sizes of state-space layers and their step sizes are those of
the small runs on delayed memory.
"""

from __future__ import annotations

from typing import Literal, get_args

from delayssm.layers.block import BlockConfig
from delayssm.layers.delta_memory import DeltaMemoryConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm_lab.models.specs import (
    GPT2Spec,
    HybridSpec,
    LlamaSpec,
    LSTMSpec,
    MambaSpec,
    Spec,
    StackSpec,
    StateSpaceSpec,
)
from delayssm_lab.tasks.associative import AssociativeRecall
from delayssm_lab.tasks.selective import SelectiveCopying
from delayssm_lab.training.run import Run, Training

RecallName = Literal["recall-64", "recall-128", "selective-copying"]
RECALLS: tuple[RecallName, ...] = get_args(RecallName)
RecallModel = Literal["ds4d", "s4d", "mamba", "lstm", "gpt2", "llama"]
HybridName = Literal["convolution", "gate", "convolution-gate", "memory", "convolution-memory"]

TASKS: dict[RecallName, AssociativeRecall | SelectiveCopying] = {
    "recall-64": AssociativeRecall(64, 4, 128),
    "recall-128": AssociativeRecall(128, 8, 256),
    "selective-copying": SelectiveCopying(128, 8, 16),
}
_TRAINING = Training(
    steps=4000, batch_size=64, evaluate_every=100, checkpoint_every=500, validation_size=512, target=0.999
)


def small(task: RecallName, model: RecallModel) -> Run:
    """Return a run of one of the models.

    All have two layers, and on each task their parameters are within 2 % of each other: about 25k, 50k and 21k. Runs
    end early when their task is solved.
    """
    length = TASKS[task].max_length
    models: dict[RecallName, dict[RecallModel, Spec]] = {
        "recall-64": {
            "ds4d": _stack(_ds4d(44, length)),
            "s4d": _stack(_s4d(46)),
            "mamba": MambaSpec(d_model=30, depth=2, d_state=16),
            "lstm": LSTMSpec(d_model=32, depth=2),
            "gpt2": GPT2Spec(d_model=26, depth=2, heads=1),
            "llama": LlamaSpec(d_model=28, depth=2, heads=1, d_mlp=70),
        },
        "recall-128": {
            "ds4d": _stack(_ds4d(57, length)),
            "s4d": _stack(_s4d(59)),
            "mamba": MambaSpec(d_model=41, depth=2, d_state=15),
            "lstm": LSTMSpec(d_model=42, depth=2),
            "gpt2": GPT2Spec(d_model=34, depth=2, heads=1),
            "llama": LlamaSpec(d_model=36, depth=2, heads=1, d_mlp=99),
        },
        "selective-copying": {
            "ds4d": _stack(_ds4d(54, length)),
            "s4d": _stack(_s4d(57)),
            "mamba": MambaSpec(d_model=32, depth=2, d_state=17),
            "lstm": LSTMSpec(d_model=35, depth=2),
            "gpt2": GPT2Spec(d_model=26, depth=2, heads=1),
            "llama": LlamaSpec(d_model=28, depth=2, heads=1, d_mlp=82),
        },
    }
    return Run(task=TASKS[task], model=models[task][model], training=_TRAINING)


#: DS4D with additions, and for each task that they are tried on the width at which the model has as many parameters as
#: those of `small`. A first trial of each on recall-64 decided which one is tried on all tasks.
HYBRIDS: dict[HybridName, dict[RecallName, int]] = {
    "convolution": {"recall-64": 44},
    "gate": {"recall-64": 32},
    "convolution-gate": {"recall-64": 32},
    "memory": {"recall-64": 51},
    "convolution-memory": {"recall-64": 51, "recall-128": 64, "selective-copying": 68},
}


def hybrid(task: RecallName, name: HybridName) -> Run:
    """Return a run of DS4D with additions: to both layers, or a content-addressed memory in place of the second."""
    layer = _ds4d(HYBRIDS[name][task], TASKS[task].max_length)
    taps = 3 if name.startswith("convolution") else 1
    model: Spec = HybridSpec(depth=2, layer=layer, taps=taps, gated=name.endswith("gate"))
    if name.endswith("memory"):
        memory = DeltaMemoryConfig(layer.d_model, taps=taps)
        family = f"DS4D and delta memory, convolution of {taps}" if taps > 1 else "DS4D and delta memory"
        model = StackSpec(blocks=(BlockConfig(layer=layer), BlockConfig(layer=memory)), family=family)
    return Run(task=TASKS[task], model=model, training=_TRAINING)


def hybrids() -> tuple[Run, ...]:
    """Return a run of each DS4D with additions on each of its tasks."""
    return tuple(hybrid(task, name) for name, widths in HYBRIDS.items() for task in widths)


def _ds4d(d_model: int, length: int) -> DS4DConfig:
    return DS4DConfig(d_model, 16, length, dt_min=4e-3, dt_max=0.4)


def _s4d(d_model: int) -> S4DConfig:
    return S4DConfig(d_model, 16, dt_min=4e-3, dt_max=0.4)


def _stack(layer: DS4DConfig | S4DConfig) -> StateSpaceSpec:
    return StateSpaceSpec(depth=2, block=BlockConfig(layer=layer))
