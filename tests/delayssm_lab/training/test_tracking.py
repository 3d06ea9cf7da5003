"""Tests of trackers of experiments, with the real ones."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from delayssm_lab.training import tracking
from tests.support.runs import LSTM, create, read_metrics, tiny

#: Prints each evaluation that a tracker has kept, as one JSON object with its step.
READERS = {
    "tensorboard": """
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(f"{directory}/tracking/delayssm").Reload()
kept = {}
for tag in events.Tags()["scalars"]:
    for event in events.Scalars(tag):
        kept.setdefault(event.step, {})[tag] = event.value
""",
    "trackio": """
from trackio.sqlite_storage import SQLiteStorage
(name,) = SQLiteStorage.get_runs("delayssm")
kept = {int(entry["step"]): entry for entry in SQLiteStorage.get_logs("delayssm", name)}
""",
    "wandb": """
import glob, struct
from wandb.proto import wandb_internal_pb2
kept = {}
(path,) = glob.glob(f"{directory}/tracking/wandb/offline-run-*/*.wandb")
content, at, parts = open(path, "rb").read(), 7, b""  # a header of 7 bytes, then records in blocks of 32 KiB
while at + 7 <= len(content):
    if at % 32768 > 32768 - 7:
        at += -at % 32768  # the rest of a block is empty
        continue
    _, size, kind = struct.unpack_from("<IHB", content, at)  # kind 1 is a whole record, 4 its last part
    parts, at = parts + content[at + 7 : at + 7 + size], at + 7 + size
    if kind in (1, 4):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(parts)
        values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        parts = b""
        if values:
            kept[int(values.get("_step", record.history.step.num))] = values
""",
}
PRINT = """
for step, values in kept.items():
    print("KEPT", json.dumps({"step": step, **{name: values[name] for name in ("loss", "accuracy", "train_loss")}}))
"""
TRAIN = """
import sys
from pathlib import Path
from delayssm_lab.display import Silent
from delayssm_lab.training.trainer import train
train(Path(sys.argv[1]), Silent(), sys.argv[2])
"""


def _python(script: str, home: Path, *arguments: object) -> str:
    """Return what a script prints, with all trackers working on this machine alone."""
    alone = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKIO_DIR": str(home), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, **alone, "HOME": str(home), "OMP_NUM_THREADS": "1"},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("tracker", READERS)
def test_a_tracker_is_told_of_each_evaluation(tracker: str, tmp_path: Path) -> None:
    directory = create(tmp_path / "run", tiny(LSTM, steps=8))
    _python(TRAIN, tmp_path, directory, tracker)
    found = _python(f"import json\ndirectory = {str(directory)!r}\n{READERS[tracker]}{PRINT}", tmp_path)
    kept = [json.loads(line.removeprefix("KEPT ")) for line in found.splitlines() if line.startswith("KEPT ")]
    expected = read_metrics(directory)
    assert len(expected) >= 2
    assert [entry["step"] for entry in kept] == [entry["step"] for entry in expected]
    for mine, theirs in zip(expected, kept, strict=True):
        for name in ("loss", "accuracy", "train_loss"):
            assert theirs[name] == pytest.approx(mine[name], rel=1e-6)


def test_a_tracker_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    tracking.check(None)
    tracking.check("wandb")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="wandb is not installed; run: pip install wandb"):
        tracking.check("wandb")


def test_a_run_keeps_its_identity(tmp_path: Path) -> None:
    (tmp_path / "tracking").mkdir()
    first = tracking._identity(tmp_path)
    assert first == tracking._identity(tmp_path)
