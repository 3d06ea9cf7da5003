"""`delayssm export`: a saved model, or the best one of a run, becomes a file that onnxruntime runs."""

from pathlib import Path

import numpy as np
import onnxruntime
import torch

from delayssm import DS4D, S4D, Block, PairModel, PooledModel, SeriesModel, Stack, TokenModel, Tokens, Values
from delayssm.export.streaming_session import StreamingSession
from tests.support.command_line import Here


def test_a_stream(tmp_path: Path, here: Here) -> None:
    model = TokenModel(9, Stack([Block(DS4D(6, 8, 20))])).eval()
    model.save_pretrained(tmp_path / "run" / "best", about={"letters": "abcdefghi"})
    code, out, errors = here("export", tmp_path / "run", tmp_path / "new" / "out.onnx")
    assert code == 0, errors
    assert f"Wrote {tmp_path / 'new' / 'out.onnx'}" in out
    assert errors == ""
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"out.onnx", "out.json", "streaming_session.py"}
    x = torch.randint(9, (1, 50))
    session = StreamingSession(tmp_path / "new" / "out.onnx")
    assert session.about["about"] == {"letters": "abcdefghi"}
    y = session(x.numpy())
    with torch.no_grad():
        assert np.abs(y - model(x).numpy()).max() <= 1e-5


def test_whole_sequences(tmp_path: Path, here: Here) -> None:
    model = SeriesModel(Values(2, 6), Stack([Block(S4D(6, 8, bidirectional=True))]), 3).eval()
    model.save_pretrained(tmp_path / "model")
    code, _, errors = here("export", tmp_path / "model", tmp_path / "out.onnx", "--max-length", 64)
    assert code == 0, errors
    session = onnxruntime.InferenceSession(str(tmp_path / "out.onnx"), providers=["CPUExecutionProvider"])
    x = torch.randn(3, 50, 2)
    with torch.no_grad():
        assert np.abs(session.run(None, {"x": x.numpy()})[0] - model(x).numpy()).max() <= 1e-5
    code, _, errors = here("export", tmp_path / "model", tmp_path / "other.onnx")
    assert code == 1
    assert "cannot stream; use export_sequences" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "other.onnx").exists()


def test_what_cannot_be_exported_is_said(tmp_path: Path, here: Here) -> None:
    encoder = PooledModel(Tokens(9, 6), Stack([Block(S4D(6, 8))]), None)
    PairModel(encoder, 2).save_pretrained(tmp_path)
    for name, expected in (("out.onnx", "a PairModel cannot be exported"), ("out.pt", "must end in .onnx")):
        code, _, errors = here("export", tmp_path, tmp_path / name)
        assert code == 1
        assert expected in errors
        assert "Traceback" not in errors
