"""Models as ONNX files. What does not agree with the model is not written."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from delayssm.export import check
from delayssm.export.examples import example
from delayssm.export.graphs import Stream, sequences_of_constants, stream_of_constants
from delayssm.layers.checks import check_whole
from delayssm.layers.delta_memory import DeltaMemory
from delayssm.layers.streaming import Streaming
from delayssm.storage import files
from delayssm.storage.model_files import facts

#: The numbers go up when the content of a file changes its meaning.
STREAM, SEQUENCES = "delayssm onnx stream 1", "delayssm onnx sequences 1"
#: A longer chunk takes longer for each token, because short delays carry along what they fed back within the chunk.
PIECE = 32
#: The operators that the functions of `operators` are made of.
OPSET = 18


def export_stream(model: nn.Module, path: Path | str, *, about: Mapping[str, Any] | None = None) -> None:
    """Write the streaming call of a model as ONNX: a chunk and the state in, outputs and the state after it out.

    Beside NAME.onnx stand NAME.json, which describes inputs, outputs and states, and streaming_session.py, which runs
    the model without torch.

    >>> from delayssm import DS4D, Block, Stack
    >>> model = Stack([Block(DS4D(8, 16, max_delay=100))]).eval()
    >>> export_stream(model, "stream.onnx")

    Args:
        model: Model in evaluation mode.
        path: Path of the file, NAME.onnx. A file that is there is replaced.
        about: Facts to keep with the model, such as names of classes, as JSON-able values.
    """
    path, model = Path(path), _checked(model, path)
    if any(getattr(module, "bidirectional", False) for module in model.modules()):
        raise ValueError(
            "a bidirectional model needs the whole sequence and cannot stream; use export_sequences, or --max-length "
            "on the command line"
        )
    stream = Stream(model)
    x, state = example(model, 2, 3), stream.init_state(2)
    y, _ = stream(x, state)
    states = [
        {
            "input": name,
            "output": f"next.{name}",
            **_tensor(t, "batch"),
            # A graph that reads its ring before it writes it may do so in the same memory.
            "in_place": name.rpartition(".")[2] == "feedback",
        }
        for name, t in state.items()
    ]
    description = {
        "format": STREAM,
        "model": model.config.to_dict(),
        "about": facts(about),
        "input": {"name": "x", **_tensor(x, "batch", "length")},
        "output": {"name": "y", **_tensor(y, "batch", "length")},
        "states": states,
        "piece": PIECE,
    }
    dynamic = {"x": {0: Dim("batch"), 1: Dim("length")}, "state": {name: {0: Dim("batch")} for name in state}}
    content = _translated(stream_of_constants(model), {"x": x, "state": state}, dynamic, description)
    check.stream(content, model)
    _write(path, content, description)
    from delayssm.export import streaming_session

    files.write(path.with_name("streaming_session.py"), Path(streaming_session.__file__).read_bytes())


def export_sequences(
    model: nn.Module, path: Path | str, max_length: int, *, about: Mapping[str, Any] | None = None
) -> None:
    """Write a model for whole sequences as ONNX: one input, one output, any batch size and any length up to a bound.

    Beside NAME.onnx stands NAME.json, which describes the input and the output.

    >>> from delayssm import DS4D, Block, Stack
    >>> model = Stack([Block(DS4D(8, 16, max_delay=100))]).eval()
    >>> export_sequences(model, "sequences.onnx", max_length=300)

    Args:
        model: Model in evaluation mode.
        path: Path of the file, NAME.onnx. A file that is there is replaced.
        max_length: Length of the longest sequence. The file holds the kernels of all layers up to it.
        about: Facts to keep with the model, such as names of classes, as JSON-able values.
    """
    path, model = Path(path), _checked(model, path)
    check_whole("max_length", max_length, 2)
    x = example(model, 2, 2)
    with torch.no_grad():
        y = model(x)
    description = {
        "format": SEQUENCES,
        "model": model.config.to_dict(),
        "about": facts(about),
        "input": {"name": "x", **_tensor(x, "batch", "length")},
        "output": {"name": "y", **_tensor(y, "batch", *(["length"] if y.ndim == 3 else []))},
        "max_length": max_length,
    }
    dynamic = {"x": {0: Dim("batch"), 1: Dim("length", max=max_length)}}
    content = _translated(sequences_of_constants(model, max_length), {"x": x}, dynamic, description)
    check.sequences(content, model, max_length)
    _write(path, content, description)


def _checked(model: nn.Module, path: Path | str) -> Streaming[Any]:
    """Return a model after making sure that it can be exported to a path."""
    if missing := [name for name in ("onnx", "onnxruntime", "onnxscript") if find_spec(name) is None]:
        raise ImportError(f"ONNX files need {', '.join(missing)}: pip install '.[onnx]' in a clone")
    if Path(path).suffix != ".onnx":
        raise ValueError(f"the name of the file must end in .onnx, not {Path(path).name!r}")
    if not isinstance(model, Streaming):
        inside = "its attribute model_" if hasattr(model, "model_") else "the sequence model inside it"
        raise ValueError(f"a {type(model).__name__} cannot be exported, but {inside} can")
    if any(isinstance(module, DeltaMemory) for module in model.modules()):
        raise ValueError("a model with a DeltaMemory cannot be written as ONNX; torch.export.export can export it")
    if model.training:
        raise ValueError("only a model in evaluation mode can be exported; call .eval() first")
    dtypes = {p.dtype for p in model.parameters()}
    if dtypes != {torch.float32}:
        raise ValueError(f"only a model in float32 can be exported, not in {', '.join(map(str, dtypes))}; use .float()")
    if devices := {str(p.device) for p in model.parameters() if p.device.type != "cpu"}:
        raise ValueError(f"only a model on the CPU can be exported, not on {', '.join(devices)}; use .cpu()")
    return model


def _tensor(t: Tensor, *dynamic: str) -> dict[str, Any]:
    """Return a tensor's description; the first axes are dynamic and have names."""
    return {"dtype": str(t.dtype).removeprefix("torch."), "shape": [*dynamic, *t.shape[len(dynamic) :]]}


def _translated(
    graph: nn.Module, inputs: dict[str, Any], dynamic: dict[str, Any], description: dict[str, Any]
) -> bytes:
    """Return the content of an ONNX file, in which the description is, too."""
    from delayssm.export import operators

    states = description.get("states", [])
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            kwargs=inputs,
            input_names=[description["input"]["name"], *(state["input"] for state in states)],
            output_names=[description["output"]["name"], *(state["output"] for state in states)],
            dynamic_shapes=dynamic,
            custom_translation_table=operators.table(),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    _strip(proto.graph)
    proto.metadata_props.add(key="delayssm", value=json.dumps(description))
    content: bytes = proto.SerializeToString()
    return content


def _strip(graph: Any) -> None:
    """Remove what the exporter notes for debugging, such as lines of code with paths, from a graph and those in it."""
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _strip(attribute.g)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter from reporting on its own code, such as packages that it has not found and does not need."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning):
                warnings.simplefilter("ignore", category)
            warnings.filterwarnings("ignore", ".*shares the same shape constraints", UserWarning)  # as it should
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _write(path: Path, content: bytes, description: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").unlink(missing_ok=True)  # it must never stand beside a model that it does not describe
    files.write(path, content)
    files.write(path.with_suffix(".json"), json.dumps(description, indent=2).encode())
