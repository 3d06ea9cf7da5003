"""ONNX files, as onnxruntime runs them, against the models."""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from delayssm import DS4D, S4D, Block, DeltaMemory, PairModel, PooledModel, Stack, Streaming, TokenModel, Tokens, export
from delayssm.estimators import DelayForecaster
from delayssm.export import Disagreement, export_sequences, export_stream, write
from delayssm.export.examples import example
from delayssm.export.graphs import sequences_of_constants, stream_of_constants
from delayssm.export.streaming_session import StreamingSession
from tests.delayssm.export.models import BOTH_WAYS, MODELS, H, error, make, stack


def _session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("build", [*MODELS.values(), *BOTH_WAYS.values()], ids=[*MODELS, *BOTH_WAYS])
def test_whole_sequences(build: Callable[[], Streaming[Any]], tmp_path: Path) -> None:
    model, path = make(build), tmp_path / "model.onnx"
    export_sequences(model, path, max_length=129)
    session, about = _session(path), json.loads((tmp_path / "model.json").read_text())
    assert about["format"] == "delayssm onnx sequences 1"
    assert about["max_length"] == 129
    for node, told in ((session.get_inputs()[0], about["input"]), (session.get_outputs()[0], about["output"])):
        assert node.name == told["name"]
        assert node.shape == told["shape"]
    with torch.no_grad():
        for batch_size, length in ((1, 1), (3, 64), (2, 65), (1, 129)):
            x = example(model, batch_size, length)
            assert error(session.run(None, {"x": x.numpy()})[0], model(x)) <= 1e-5
    with pytest.raises(Exception, match=r"(?i)broadcast|dimension|shape"):
        session.run(None, {"x": example(model, 1, 130).numpy()})


@pytest.mark.parametrize("build", MODELS.values(), ids=MODELS.keys())
def test_streams(build: Callable[[], Streaming[Any]], tmp_path: Path) -> None:
    """In place, and also as a function: with new outputs, in chunks of any length, rows of different ages."""
    model, path = make(build), tmp_path / "model.onnx"
    export_stream(model, path)
    about = json.loads((tmp_path / "model.json").read_text())
    session, names = _session(path), [state["input"] for state in about["states"]]
    nodes = {node.name: (node.shape, node.type) for node in (*session.get_inputs(), *session.get_outputs())}
    types = {"float32": "tensor(float)", "float64": "tensor(double)", "int64": "tensor(int64)"}
    for state in about["states"]:
        assert nodes[state["input"]] == nodes[state["output"]] == (state["shape"], types[state["dtype"]])
    x = example(model, 3, 150)
    with torch.no_grad():
        expected, _ = model.stream(x, model.init_state(3))
    in_place = StreamingSession(path, batch_size=3)
    for _ in range(2):
        y = np.concatenate([in_place(chunk.numpy()) for chunk in x.split([1, 80, 2, 67], dim=1)], axis=1)
        assert error(y, expected) <= 1e-5
        in_place.reset()

    def run(x: torch.Tensor, states: dict[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        y, *after = session.run(None, {"x": x.numpy(), **states})
        return y, dict(zip(names, after, strict=True))

    zeros = {s["input"]: np.zeros([3, *s["shape"][1:]], s["dtype"]) for s in about["states"]}
    first, states = run(x[:, :101], zeros)
    assert error(first, expected[:, :101]) <= 1e-5
    assert all((value == 0).all() for value in zeros.values())
    for value in states.values():
        value[1] = 0  # this row begins again
    y, _ = run(x[:, 101:], states)
    assert error(y[[0, 2]], expected[[0, 2], 101:]) <= 1e-5
    with torch.no_grad():
        fresh, _ = model.stream(x[1:2, 101:], model.init_state(1))
    assert error(y[[1]], fresh) <= 1e-5


@pytest.fixture(scope="module")
def long_stream(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, torch.Tensor, torch.Tensor]:
    """Return a file, 10,000 tokens, and what `stream` makes of them."""
    torch.manual_seed(0)
    blocks = [
        Block(DS4D(16, 16, 1000)),
        Block(DS4D(16, 16, 50, branch_fraction=0.9), norm="batch", prenorm=False),
        Block(S4D(16, 16, dt_min=1e-4)),
    ]
    model = TokenModel(64, Stack(blocks)).eval()
    path = tmp_path_factory.mktemp("long") / "model.onnx"
    export_stream(model, path)
    x = torch.randint(64, (1, 10_000))
    with torch.no_grad():
        return path, x, model.stream(x, model.init_state(1))[0]


@pytest.mark.parametrize("chunk", [1, 16, 333])
def test_long_streams(chunk: int, long_stream: tuple[Path, torch.Tensor, torch.Tensor]) -> None:
    path, x, expected = long_stream
    session = StreamingSession(path)
    y = np.concatenate([session(piece.numpy()) for piece in x.split(chunk, dim=1)], axis=1)
    assert error(y, expected) <= 1e-5


def test_no_torch_is_needed(long_stream: tuple[Path, torch.Tensor, torch.Tensor], tmp_path: Path) -> None:
    """What stands beside the model runs it alone, without torch and without this library."""
    path, x, expected = long_stream
    np.save(tmp_path / "x.npy", x[:, :1200].numpy())
    code = f"""
import sys
sys.modules["torch"] = sys.modules["delayssm"] = None
sys.path.insert(0, {str(path.parent)!r})
import numpy as np
from streaming_session import StreamingSession

session, x = StreamingSession({str(path)!r}), np.load("x.npy")
np.save("y.npy", np.concatenate([session(x[:, i : i + 100]) for i in range(0, 1200, 100)], axis=1))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert error(np.load(tmp_path / "y.npy"), expected[:, :1200]) <= 1e-5


def test_rings_are_written_in_place(long_stream: tuple[Path, torch.Tensor, torch.Tensor]) -> None:
    session = StreamingSession(long_stream[0])
    rings = {name: value.data_ptr() for name, value in session._now.items() if name.endswith("feedback")}
    assert len(rings) == 2
    for _ in range(3):
        session(np.ones((1, 1), np.int64))
        assert {name: session._now[name].data_ptr() for name in rings} == rings
    assert session._now["0.feedback"].numpy().any()


def test_a_session_says_what_is_wrong(long_stream: tuple[Path, torch.Tensor, torch.Tensor], tmp_path: Path) -> None:
    session = StreamingSession(long_stream[0])
    for shape in ((2, 3), (1, 0), (3,), (1, 3, 1)):
        with pytest.raises(ValueError, match=r"expected an array of shape \(1, \d\), with one time or more, not \("):
            session(np.ones(shape, np.int64))
    with pytest.raises(TypeError, match="same_kind"):
        session(np.ones((1, 3)))
    export_sequences(make(MODELS["layer"]), tmp_path / "whole.onnx", 10)
    with pytest.raises(ValueError, match="not a streaming model: its format is 'delayssm onnx sequences 1'"):
        StreamingSession(tmp_path / "whole.onnx")


def test_a_file_that_disagrees_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, other = (Stack([Block(S4D(H, 8))]).eval() for _ in range(2))
    monkeypatch.setattr(write, "stream_of_constants", lambda model: stream_of_constants(other))
    monkeypatch.setattr(write, "sequences_of_constants", lambda model, n: sequences_of_constants(other, n))
    path = tmp_path / "model.onnx"
    path.write_bytes(b"before")
    with pytest.raises(Disagreement, match=r"outputs of a stream differ by .* Nothing was written"):
        export_stream(model, path)
    with pytest.raises(Disagreement, match=r"outputs of sequences of 1 differ by .* Nothing was written"):
        export_sequences(model, path, 50)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    assert path.read_bytes() == b"before"


def test_files_have_no_paths_of_this_machine(long_stream: tuple[Path, torch.Tensor, torch.Tensor]) -> None:
    path = long_stream[0]
    assert str(Path(export.__file__).parent).encode() not in path.read_bytes()
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert not model.functions
    assert {node.domain for node in model.graph.node} == {""}
    assert json.loads(model.metadata_props[0].value) == json.loads(path.with_suffix(".json").read_text())


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    path, model = tmp_path / "model.onnx", make(MODELS["stack"])
    with pytest.raises(ValueError, match="cannot stream; use export_sequences"):
        export_stream(make(BOTH_WAYS["both ways"]), path)
    with pytest.raises(ValueError, match=r"must end in \.onnx, not 'model.pt'"):
        export_stream(model, tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"call \.eval\(\) first"):
        export_stream(stack(), path)
    with pytest.raises(ValueError, match=r"only a model in float32 .* torch\.float64; use \.float\(\)"):
        export_sequences(make(MODELS["stack"]).double(), path, 10)
    with pytest.raises(ValueError, match="max_length must be a whole number of at least 2, not 1"):
        export_sequences(model, path, 1)
    pair = PairModel(PooledModel(Tokens(9, H), stack(), None), 2).eval()
    with pytest.raises(ValueError, match="a PairModel cannot be exported, but the sequence model inside it can"):
        export_sequences(pair, path, 10)
    for write_onnx in (export_stream, partial(export_sequences, max_length=10)):
        with pytest.raises(ValueError, match=r"DeltaMemory cannot be written as ONNX; torch\.export\.export can"):
            write_onnx(Stack([Block(DeltaMemory(H))]).eval(), path)
    forecaster = DelayForecaster(d_model=4, depth=1, max_epochs=1).fit(np.sin(np.arange(30)))
    with pytest.raises(ValueError, match="a DelayForecaster cannot be exported, but its attribute model_ can"):
        export_stream(forecaster, path)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"need onnxruntime: pip install '.\[onnx\]' in a clone"):
        export_stream(make(MODELS["layer"]), tmp_path / "model.onnx")
