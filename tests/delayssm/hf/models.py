"""The models that the tests of `delayssm.hf` run over."""

from collections.abc import Callable

import pytest
import torch

from delayssm import DS4D, S4D, Block, Stack, TokenModel
from delayssm.hf import DS4DForCausalLM

V = 20
STACKS: dict[str, Callable[[], Stack]] = {
    "DS4D": lambda: Stack(Block(DS4D(8, 8, max_delay=30)) for _ in range(2)),
    "mixed": lambda: Stack(
        [Block(DS4D(6, 8, max_delay=12, n_ssm=2), prenorm=False), Block(S4D(6, 4), norm="batch"), Block(S4D(6, 8))]
    ),
}
every_model = pytest.mark.parametrize("kind", STACKS)


def make(kind: str = "DS4D") -> DS4DForCausalLM:
    """Return a model in evaluation mode whose answers are far from uniform."""
    torch.manual_seed(1)
    model = TokenModel(V, STACKS[kind]()).eval()
    with torch.no_grad():
        model.head.weight *= 5
    return DS4DForCausalLM.from_model(model)


def padded(rows: list[torch.Tensor], side: str, length: int | None = None) -> dict[str, torch.Tensor]:
    """Return rows of different lengths as a batch, with padding that holds no valid token."""
    length = length or max(map(len, rows))
    ids, mask = torch.full((len(rows), length), -1), torch.zeros(len(rows), length, dtype=torch.int64)
    for i, row in enumerate(rows):
        place = slice(length - len(row), length) if side == "left" else slice(len(row))
        ids[i, place], mask[i, place] = row, 1
    return {"input_ids": ids, "attention_mask": mask}
