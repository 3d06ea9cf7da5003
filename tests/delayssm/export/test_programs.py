"""`torch.export` of whole sequences and of streams, for any batch size and any length."""

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim, ExportedProgram

from delayssm import Streaming, TokenModel
from delayssm.export import Stream
from delayssm.export.examples import example
from tests.delayssm.export.models import BOTH_WAYS, MODELS, error, make, stack

ROWS, TIMES = Dim("batch"), Dim("length")
pytestmark = [
    # Raised inside torch itself, when it copies its own specifications of trees.
    pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.:FutureWarning"),
]


def _stream(model: Streaming[Any]) -> ExportedProgram:
    stream = Stream(model)
    state = stream.init_state(2)
    shapes = {0: ROWS, 1: TIMES}, {name: {0: ROWS} for name in state}
    return torch.export.export(stream, (example(model, 2, 5), state), dynamic_shapes=shapes)


@pytest.mark.parametrize("build", [*MODELS.values(), *BOTH_WAYS.values()], ids=[*MODELS, *BOTH_WAYS])
def test_whole_sequences(build: Callable[[], Streaming[Any]]) -> None:
    model = make(build)
    program = torch.export.export(model, (example(model, 2, 5),), dynamic_shapes=({0: ROWS, 1: TIMES},)).module()
    with torch.no_grad():
        for batch_size, length in ((1, 1), (3, 100), (2, 5)):
            x = example(model, batch_size, length)
            assert error(program(x), model(x)) <= 1e-6


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
def test_streams(build: Callable[[], Streaming[Any]]) -> None:
    model = make(build)
    program = _stream(model).module()
    for batch_size in (1, 3):
        x, state, streams = (
            example(model, batch_size, 100),
            Stream(model).init_state(batch_size),
            model.init_state(batch_size),
        )
        for chunk in x.split([1, 60, 1, 38], dim=1):
            before = {name: t.clone() for name, t in state.items()}
            y, after = program(chunk, state)
            assert all(torch.equal(state[name], before[name]) for name in state)  # inputs are not outputs
            with torch.no_grad():
                expected, streams = model.stream(chunk, streams)
            assert error(y, expected) <= 1e-6
            state = after
        assert state["position"].tolist() == [100] * batch_size


def test_parameters_stay_parameters() -> None:
    """A program follows its weights: it computes with those that it is given."""
    torch.manual_seed(0)
    model, other = (TokenModel(9, stack()).eval() for _ in range(2))
    program = torch.export.export(model, (example(model, 2, 5),), dynamic_shapes=({0: ROWS, 1: TIMES},)).module()
    x = example(model, 2, 30)
    with torch.no_grad():
        before = program(x)
        program.load_state_dict(other.state_dict())
        assert error(program(x), other(x)) <= 1e-6
        assert error(before, other(x)) > 0.1


def test_a_program_can_be_saved() -> None:
    model = make(MODELS["tokens"])
    file = io.BytesIO()
    torch.export.save(_stream(model), file)
    file.seek(0)
    program = torch.export.load(file).module()
    x = example(model, 3, 20)
    with torch.no_grad():
        expected, _ = model.stream(x, model.init_state(3))
    assert error(program(x, Stream(model).init_state(3))[0], expected) <= 1e-6


def test_only_evaluation_is_exported() -> None:
    with pytest.raises(ValueError, match=r"call \.eval\(\) first"):
        Stream(stack())
