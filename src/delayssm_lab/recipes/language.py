"""Runs on language: four models of film reviews with equally many parameters. The paper has none of them."""

from __future__ import annotations

from typing import Literal, get_args

from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import DS4DConfig, S4DConfig
from delayssm_lab.models.specs import LlamaSpec, MambaSpec, Spec, StateSpaceSpec
from delayssm_lab.tasks.language import FilmReviews
from delayssm_lab.training.run import Run, Training
from delayssm_lab.training.schedules import Cosine

LanguageName = Literal["reviews"]
LanguageModelName = Literal["ds4d", "s4d", "mamba", "llama"]
LANGUAGE_TASKS: tuple[LanguageName, ...] = get_args(LanguageName)
LANGUAGE_MODELS: tuple[LanguageModelName, ...] = get_args(LanguageModelName)

#: Parameters that the width of every model was chosen for by `matched`; they come within 1 % of it.
PARAMETERS = 400_000
REVIEWS = FilmReviews()
#: Windows of a step.
BATCH = 8
#: Mamba has the state and the convolution of its publication, and the MLP of Llama is about 8/3 as wide as the model.
MODELS: dict[LanguageModelName, Spec] = {
    "ds4d": StateSpaceSpec(depth=6, block=BlockConfig(layer=DS4DConfig(136, 32, REVIEWS.context))),
    "s4d": StateSpaceSpec(depth=6, block=BlockConfig(layer=S4DConfig(142, 32))),
    "mamba": MambaSpec(d_model=89, depth=6, d_state=16, conv_kernel=4),
    "llama": LlamaSpec(d_model=72, depth=6, heads=4, d_mlp=184),
}


def reviews(model: LanguageModelName) -> Run:
    """Return a run on film reviews: 8 windows of 1,024 bytes at a time, once through 10 million bytes.

    The windows and their order, the batch, the schedule and the clipping are the same for all models.
    """
    steps = REVIEWS.train_bytes // (BATCH * REVIEWS.context)
    training = Training(
        steps=steps,
        batch_size=BATCH,
        schedule=Cosine(warmup=30),
        evaluate_every=steps // 20,
        checkpoint_every=steps // 20,
        validation_size=128,
        test_size=512,
    )
    return Run(task=REVIEWS, model=MODELS[model], training=training)
