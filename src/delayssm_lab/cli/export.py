"""Write a trained model as ONNX, to run it without torch."""

from __future__ import annotations

from pathlib import Path

import tyro

from delayssm_lab.cli.common import check_at_least


def command(
    directory: tyro.conf.Positional[Path], out: tyro.conf.Positional[Path], max_length: int | None = None
) -> None:
    """Write a trained model as ONNX, to run it without torch.

    The file is for streaming, unless --max-length is given: then it is for whole sequences. It is compared with the
    model in onnxruntime before it is written. Beside it, a JSON file describes its inputs and outputs, and
    streaming_session.py runs a streaming model.

    Args:
        directory: Directory of a saved model, or of a run, whose best weights are taken.
        out: File to write, NAME.onnx.
        max_length: Length of the longest sequence, for a model of whole sequences.
    """
    from delayssm.export import export_sequences, export_stream
    from delayssm.storage.pretrained import Pretrained, read_about
    from delayssm_lab.training.checkpoint import model_directory

    check_at_least(2, max_length=max_length)
    source = model_directory(directory)
    model, about = Pretrained.from_pretrained(source), read_about(source)
    if max_length is None:
        export_stream(model, out, about=about)
        print(f"Wrote {out.resolve()}, and beside it {out.stem}.json and streaming_session.py, which runs it")
    else:
        export_sequences(model, out, max_length, about=about)
        print(f"Wrote {out.resolve()}, and beside it {out.stem}.json")
