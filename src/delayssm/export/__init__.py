"""Models that run elsewhere: `torch.export` and ONNX. Writing ONNX needs the extra `onnx`."""

from delayssm.export.check import Disagreement
from delayssm.export.graphs import Stream
from delayssm.export.write import export_sequences, export_stream

__all__ = ["Disagreement", "Stream", "export_sequences", "export_stream"]
