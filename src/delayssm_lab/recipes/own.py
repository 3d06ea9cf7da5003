"""Runs on the task of a script."""

from __future__ import annotations

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm.models.matching import count_parameters
from delayssm_lab.models.specs import GPT2Spec, LlamaSpec, LSTMSpec, MambaSpec, Spec, StateSpaceSpec, matched
from delayssm_lab.recipes.recall import RecallModel
from delayssm_lab.tasks.task import Metric, Task
from delayssm_lab.training.run import Run, Training

_DS4D = StateSpaceSpec(depth=2, block=BlockConfig(layer=DS4DConfig(64, 16)))
#: The width of all models but the first is changed to match its parameters.
_OTHERS: dict[RecallModel, Spec] = {
    "s4d": StateSpaceSpec(depth=2, block=BlockConfig(layer=S4DConfig(64, 16))),
    "mamba": MambaSpec(d_model=64, depth=2, d_state=16),
    "lstm": LSTMSpec(d_model=64, depth=2),
    "gpt2": GPT2Spec(d_model=64, depth=2, heads=1),
    "llama": LlamaSpec(d_model=64, depth=2, heads=1, d_mlp=172),
}


def small(task: Task, model: RecallModel) -> Run:
    """Return a run with two layers, which ends early if its metric is an accuracy and the task is solved.

    DS4D has H 64, N 16 and delays up to the length of the sequences. The other models have about as many parameters.

    The learning rate is 4e-3 for every model, which is not the best one for all of them: it suits DS4D and S4D better
    than Llama. A comparison of models needs a sweep over learning rates for each of them.
    """
    ds4d = _DS4D.with_delays_up_to(max(3, task.max_length))
    spec: Spec = ds4d
    if model != "ds4d":
        spec = matched(_OTHERS[model], count_parameters(lambda: task.build(ds4d)), task.build)  # type: ignore[type-var]
    target = 0.999 if task.metric is Metric.ACCURACY else None
    training = Training(steps=2000, batch_size=32, lr=4e-3, target=target)
    return Run(task=task, model=spec, training=training)
