"""Studies of decoding and of prompts at toy size: streams are those of the models, tables hold what was measured."""

import json
from pathlib import Path

import pytest
import torch

from delayssm_lab.measure.decoding import Decoding, DifferentAges, SideBySide, readings
from delayssm_lab.measure.decoding_speed import DecodingSpeed
from delayssm_lab.measure.export_speed import ExportSpeed
from delayssm_lab.measure.prompt_speed import PromptSpeed
from delayssm_lab.measure.stacks import StackSize
from delayssm_lab.measure.streams import Memory, Model, StackStreams, random_tokens, state_bytes, streams_of
from delayssm_lab.models.specs import GPT2Spec, MambaSpec
from tests.support.studies import make, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

S4D, DS4D = StackSize("S4D", d_model=16, d_state=4, depth=2), StackSize("DS4D", d_model=16, d_state=4, depth=2)
GPT2 = GPT2Spec(d_model=16, depth=2, heads=2)
MAMBA = MambaSpec(d_model=16, depth=2, d_state=4, conv_kernel=4)


@pytest.mark.parametrize(
    ("model", "memory"),
    [
        (S4D, "endless"),
        (S4D, "bounded"),
        (DS4D, "endless"),
        (DS4D, "bounded"),
        (DS4D, "dense"),
        (GPT2, None),
        (MAMBA, None),
    ],
    ids=str,
)
@torch.no_grad()
def test_streams_are_those_of_the_model(model: Model, memory: Memory | None) -> None:
    """Logits after a past that was given at once, twice in any order, equal those of the whole sequence."""
    tokens = random_tokens(200, 1, "cpu").expand(-1, 3)
    streams = streams_of(model, memory, tokens)
    whole = streams.model(tokens.T)
    logits = whole if isinstance(whole, torch.Tensor) else whole.logits
    for start in (150, 90):
        step = streams.start(start)
        for t in range(start, start + 20):
            torch.testing.assert_close(step(tokens[t]), logits[:, t], rtol=1e-4, atol=1e-5)
    estimate = state_bytes(model, memory, 1, 200)
    assert estimate <= streams.stream_bytes < 2 * estimate + 3000
    assert (streams.shared_bytes() > 0) == (memory == "bounded")


@torch.no_grad()
def test_rows_begin_at_their_own_age() -> None:
    tokens = random_tokens(100, 3, "cpu")
    streams = StackStreams(DS4D, True, tokens)
    step = streams.start_rows([0, 10, 70])
    logits = streams.model(tokens.T)
    expected = torch.stack([logits[row, age] for row, age in enumerate([0, 10, 70])])
    torch.testing.assert_close(step(tokens[[0, 10, 70], [0, 1, 2]]), expected, rtol=1e-4, atol=1e-5)


def test_windows_and_whole_streams() -> None:
    whole = Decoding(DS4D, "bounded", 2, 130).measure()
    assert whole["tokens"] == 130
    assert 0 < whole["median"] <= whole["99th percentile"] <= whole["largest"]
    assert whole["median"] <= 130 * whole["mean"]
    windows = Decoding(GPT2, None, 2, 64, (0, 28, 56), 8).measure()
    assert windows["tokens"] == 24
    assert windows["stream bytes"] == state_bytes(GPT2, None, 1, 64)


def test_a_window_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayssm_lab.measure.decoding.SECONDS", 0.0)
    assert Decoding(GPT2, None, 1, 64, (0, 28), 8).measure()["tokens"] == 4


def test_windows_have_equal_weight() -> None:
    streams = StackStreams(S4D, False, random_tokens(10, 1, "cpu"))
    streams.start(0)
    values = readings([[1.0] * 100, [4.0, 5.0], [7.0]], streams)
    assert values["mean"] == pytest.approx((1 + 4.5 + 7) / 3)
    assert [values[name] for name in ("median", "99th percentile", "largest", "tokens")] == [4, 7, 7, 103]
    assert readings([[*map(float, range(1000))]], streams)["99th percentile"] == pytest.approx(990, abs=1)


@pytest.fixture(scope="module")
def study() -> DecodingSpeed:
    return DecodingSpeed(
        shapes=((1, 64), (1, 128), (3, 64), (3, 256)), window=16, whole=64, largest_state=3e5, dense=(1, 64),
        ages=(3, 64), ages_spacing=8, side_by_side=70, s4d=S4D, ds4d=DS4D, gpt2=GPT2, mamba=MAMBA,
    )  # fmt: skip


def test_points_of_decoding(study: DecodingSpeed) -> None:
    points = [point for point in study.points() if isinstance(point, Decoding)]
    for batch_size in (1, 3):
        assert len([p for p in points if p.model == MAMBA and p.batch_size == batch_size]) == 1
    assert [(p.batch_size, p.length) for p in points if p.memory == "dense"] == [(1, 64)]
    assert all(p.window is None for p in points if p.memory == "bounded")
    (large,) = (p for p in points if p.memory == "endless" and p.model == DS4D and p.length == 256)
    assert (large.starts, large.window) == ((0, 56, 120, 184, 240), 16)
    full = DecodingSpeed().points()
    sizes = {p.label: [(q.batch_size, q.length) for q in full if q.label == p.label] for p in full}
    assert sizes["DS4D, H 256, endless"] == [
        *((1, n) for n in (1024, 2048, 4096, 8192)), *((8, n) for n in (1024, 2048, 4096)),
    ]  # fmt: skip
    assert len(sizes["DS4D, H 256, bounded"]) == len(sizes["GPT-2, H 256"]) == 13


@pytest.mark.usefixtures("in_process")
def test_decoding_speed(study: DecodingSpeed, tmp_path: Path) -> None:
    content = make(study, tmp_path)
    assert set(content) == {"table.md", "decoding.png", "points.json", "about.json"}
    points, measured = study.points(), [entry["values"] for entry in json.loads(content["points.json"])]
    head, _, *rows = table_rows(content["table.md"])
    assert len(rows) == len(points) == len(measured)
    cells = {(row[0], row[1], row[2]): dict(zip(head, row, strict=True)) for row in rows}
    values = {(p.batch_size, p.length, p.label): v for p, v in zip(points, measured, strict=True)}
    bounded, row = values[3, 256, "DS4D, H 16, bounded"], cells["3", "256", "DS4D, H 16, bounded"]
    mamba, gpt2 = values[3, 64, "Mamba, H 16"], values[3, 256, "GPT-2, H 16"]
    assert row["measured"] == "all tokens"
    assert row["microseconds/token"] == f"{bounded['mean'] * 1e6:,.0f}"
    assert row["microseconds/token/stream"] == f"{bounded['mean'] / 3 * 1e6:,.1f}"
    assert row["time / Mamba"] == f"{bounded['mean'] / mamba['mean']:.2f}"
    assert row["time / GPT-2"] == f"{bounded['mean'] / gpt2['mean']:.2f}"
    both = bounded["stream bytes"] + bounded["shared bytes"]
    assert row["MB of both"] == f"{both / 1e6:.3g}"
    assert row["/ keys and values"] == f"{both / gpt2['stream bytes']:.2g}"
    assert cells["3", "256", "GPT-2, H 16"]["measured"] == "5 windows, 80 tokens"
    assert cells["3", "256", "GPT-2, H 16"]["/ keys and values"] == "1"
    assert cells["3", "256", "S4D, H 16, endless"]["measured"] == "1 window, 16 tokens"
    assert cells["3", "256", "S4D, H 16, endless"]["time / S4D endless"] == "1.00"
    assert cells["3", "any", "Mamba, H 16"]["time / Mamba"] == "1.00"
    assert cells["3", "64", "DS4D, H 16, bounded, rows of different age"]["measured"] == "last 48 tokens"
    two = values[1, 70, "DS4D, H 16, bounded, two threads of Python"]
    ratio = f"all tokens; {two['mean'] / two['alone']:.2f} times one stream alone"
    assert cells["1 + 1", "70", "DS4D, H 16, bounded, two threads of Python"]["measured"] == ratio
    assert values[1, 64, "DS4D, H 16, dense"]["stream bytes"] == 2 * 64 * 16 * 4 * 4  # all states of all steps


def test_threads_of_torch_are_as_before() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    SideBySide(DS4D, 64, torch_threads=1).measure()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_streams_of_different_ages() -> None:
    assert DifferentAges(DS4D, 4, 100, 20).measure()["tokens"] == 40


@pytest.mark.usefixtures("in_process")
def test_prompt_speed(tmp_path: Path) -> None:
    study = PromptSpeed(tokens=40, chunks=(1, 7), endless_chunks=(7,), max_length=80, stack=DS4D)
    content = make(study, tmp_path)
    seconds = [entry["values"]["seconds"] for entry in json.loads(content["points.json"])]
    rows = table_rows(content["table.md"])[2:]
    assert [row[:2] for row in rows] == [
        *(["bounded stream", chunk] for chunk in ("1", "7", "all")),
        *(["endless stream", chunk] for chunk in ("7", "all")),
        ["FFT", "all"],
    ]
    assert rows[1][2] == f"{seconds[1] / 40 * 1e6:,.1f}"
    assert rows[1][4] == f"{seconds[1] / seconds[-1]:.2f}"


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_export_speed(tmp_path: Path) -> None:
    stacks = (
        (StackSize("DS4D", d_model=4, d_state=4, depth=1), 30),
        (StackSize("S4D", d_model=4, d_state=4, depth=1), 3),
    )
    content = make(ExportSpeed(stacks=stacks, chunks=(1, 5), calls=10), tmp_path)
    points = json.loads(content["points.json"])
    rows = table_rows(content["table.md"])[2:]
    assert len(rows) == len(points) == 8
    seconds = {(row[0], row[1], row[2]): entry["values"]["seconds"] for row, entry in zip(rows, points, strict=True)}
    assert all(time > 0 for time in seconds.values())
    for row, entry in zip(rows, points, strict=True):
        base = seconds[row[0], "decoder of this library", "1"]
        assert row[5] == f"{entry['values']['seconds'] / int(row[2]) / base:.1f}"
    delayed, _, chunk, copied = (entry["values"] for entry in points[:4])
    # The last states (4, 2, 2) are float64, rings have (slots, 2, 2) of float32, and there is one position.
    slots = (delayed["stream bytes"] - 4 * 4 * 8 - 8) / 16
    assert delayed["moved bytes"] == 2 * (4 * 4 * 8 + 8 + 4 * 16)
    assert chunk["moved bytes"] == 2 * (4 * 4 * 8 + 8 + 4 * 5 * 16)
    assert copied["moved bytes"] == 2 * copied["stream bytes"] == 2 * (4 * 4 * 8 + 8 + slots * 16)
    assert points[4]["values"]["moved bytes"] == 2 * points[4]["values"]["stream bytes"]
