"""Run a model that `delayssm` has exported for streaming. This file needs numpy and onnxruntime, and nothing else.

session = StreamingSession("model.onnx")
y = session(chunk)  # (batch, times, ...), for chunks of any length; the streams go on from call to call
session.reset()  # begin again
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime


class StreamingSession:
    """A batch of streams through an exported model, which is a file or its content."""

    def __init__(self, model: str | Path | bytes, batch_size: int = 1, threads: int = 1) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        source = model if isinstance(model, bytes) else str(model)
        self.session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        self.about: dict[str, Any] = json.loads(self.session.get_modelmeta().custom_metadata_map.get("delayssm", "{}"))
        if self.about.get("format") != "delayssm onnx stream 1":
            raise ValueError(f"not a streaming model: its format is {self.about.get('format')!r}")
        self.batch_size = batch_size
        self.reset()

    def reset(self) -> None:
        """Begin all streams afresh."""
        self._now, self._after = ({s["input"]: self._zeros(s) for s in self.about["states"]} for _ in range(2))
        # Rings are large: they are written where they are read, so that they are never copied.
        self._after.update({s["input"]: self._now[s["input"]] for s in self.about["states"] if s["in_place"]})

    def __call__(self, chunk: Any) -> np.ndarray:
        """Return the outputs for the next times of all streams, (batch, times, ...)."""
        piece, described = self.about["piece"], self.about["input"]
        chunk = np.asarray(chunk).astype(described["dtype"], casting="same_kind", copy=False)
        wanted = (self.batch_size, max((1, *chunk.shape[1:2])), *described["shape"][2:])
        if chunk.shape != wanted:
            raise ValueError(f"expected an array of shape {wanted}, with one time or more, not {chunk.shape}")
        return np.concatenate([self._run(chunk[:, i : i + piece]) for i in range(0, chunk.shape[1], piece)], axis=1)

    def _run(self, chunk: np.ndarray) -> np.ndarray:
        binding = self.session.io_binding()
        binding.bind_cpu_input(self.about["input"]["name"], np.ascontiguousarray(chunk))
        binding.bind_output(self.about["output"]["name"])
        for state in self.about["states"]:
            binding.bind_ortvalue_input(state["input"], self._now[state["input"]])
            binding.bind_ortvalue_output(state["output"], self._after[state["input"]])
        self.session.run_with_iobinding(binding)
        self._now, self._after = self._after, self._now
        return np.asarray(binding.get_outputs()[0].numpy())

    def _zeros(self, state: dict[str, Any]) -> onnxruntime.OrtValue:
        zeros = np.zeros([self.batch_size, *state["shape"][1:]], state["dtype"])
        return onnxruntime.OrtValue.ortvalue_from_numpy(zeros)
