"""Studies of speed and memory at toy size: tables hold what was measured."""

import json
from pathlib import Path

import pytest
import torch

from delayssm import DelaySSM
from delayssm_lab.measure import fresh, resources, textbook
from delayssm_lab.measure.full_size import FullSize, Pass
from delayssm_lab.measure.generator_speed import GeneratorSpeed
from delayssm_lab.measure.gpu_binaries import GENERATIONS, KERNELS, GPUBinaries
from delayssm_lab.measure.import_time import ImportTime
from delayssm_lab.measure.kernel_speed import LABELS, KernelPass, KernelSpeed
from delayssm_lab.measure.limits import Limits
from delayssm_lab.measure.long_sequences import LongSequences
from delayssm_lab.measure.model_speed import ModelSpeed
from delayssm_lab.measure.stacks import StackSize
from delayssm_lab.measure.training_breakdown import Breakdown, part_of
from delayssm_lab.measure.training_speed import TrainingSpeed
from delayssm_lab.measure.training_step import TrainingStep
from delayssm_lab.recipes.delayed import preset
from delayssm_lab.study import Places
from tests.support.numerics import relative_rms
from tests.support.studies import make, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

S4D, DS4D, MATCHED = (
    StackSize("S4D", d_model=6, d_state=4, depth=1),
    StackSize("DS4D", d_model=6, d_state=4, depth=1),
    StackSize("DS4D", d_model=4, d_state=4, depth=1),
)


@pytest.mark.usefixtures("in_process")
def test_training_speed(tmp_path: Path) -> None:
    study = TrainingSpeed(
        shapes=((1, 32), (2, 32), (2, 64)), textbook_shapes=((1, 32),), bfloat16_shapes=((2, 64),),
        breakdown_shapes=((2, 32),), s4d=S4D, ds4d=DS4D, matched=MATCHED, limits=Limits(side=16, elements=64),
    )  # fmt: skip
    content = make(study, tmp_path)
    assert set(content) == {
        "table.md", "summary.md", "training.png", "limits.md", "breakdown.md", "points.json", "about.json",
    }  # fmt: skip
    limits, *points, breakdown = json.loads(content["points.json"])
    assert f"dense products {limits['values']['GFLOPS']:.0f} GFLOPS" in content["limits.md"].decode()
    assert len(points) == 2 * (3 * 4 + 1) + 2
    fastest: dict[tuple[str, str], float] = {}
    for entry in points:
        point, values = (
            TrainingStep(**{**entry["point"], "stack": StackSize(**entry["point"]["stack"])}),
            entry["values"],
        )
        assert values["rows"] == point.batch_size
        assert values["peak bytes"] > 0
        key = f"{point.batch_size} x {point.length}", point.label
        fastest[key] = min(values["seconds"], fastest.get(key, float("inf")))
    rows = {(row[0], row[1]): row[2:] for row in table_rows(content["table.md"])[2:]}
    assert rows.keys() == fastest.keys()
    products, s4d = fastest["1 x 32", "dense products, H 6"], fastest["1 x 32", "S4D, H 6"]
    time = fastest["1 x 32", "textbook, H 6"]
    assert rows["1 x 32", "textbook, H 6"][1:4] == [
        f"{32 / time:,.0f}",
        f"{time / products:.2f}",
        f"{time / s4d:.2f}",
    ]
    assert rows["2 x 64", "S4D, H 6"][3] == "1.00"
    summary = {row[0]: row[1:] for row in table_rows(content["summary.md"])}
    assert summary["model"] == ["1 x 32", "2 x 32", "2 x 64"]
    assert summary["textbook, H 6"] == [f"{32 / time:,.0f}", "", ""]
    assert [label for shape, label in rows if shape == "2 x 64" and rows[shape, label][5]] == [
        "DS4D, bfloat16 products, H 6"
    ]
    assert 1e-4 < float(rows["2 x 64", "DS4D, bfloat16 products, H 6"][5]) < 2e-2
    parts = breakdown["values"]
    assert all(seconds > 0 for seconds in parts.values())
    (row,) = table_rows(content["breakdown.md"])[2:]
    assert row[0] == "2 x 32"
    share = parts["convolutions"] / sum(parts.values())
    assert row[3] == f"{parts['convolutions'] * 1e3:,.0f} ({share:.0%})"
    assert row[6] == f"{12 * 2 * 32 * 6**2 / parts['dense products'] / 1e9:.0f}"


@pytest.mark.parametrize(
    ("operator", "part"),
    [
        ("aten::mm", "dense products"),
        ("aten::addmm_", "dense products"),
        ("delayssm::convolve_backward", "convolutions"),
        ("GeneratedBackwardFor_delayssm_convolve_default", "convolutions"),
        ("delayssm::kernel", "kernels"),
        ("GeneratedBackwardFor_delayssm_kernel_defaultBackward", "kernels"),
        ("delayssm::mix", "element-wise and other"),
        ("aten::mul", "element-wise and other"),
    ],
)
def test_operators_belong_to_parts_of_a_step(operator: str, part: str) -> None:
    assert part_of(operator) == part


def test_a_batch_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([100, 110])
    monkeypatch.setattr(resources, "peak_memory", lambda device: next(peaks))
    monkeypatch.setattr(resources, "available_memory", lambda device: 220)
    asked: list[int] = []
    # 100 + 7 x 10 is within 85 % of 220, 100 + 15 x 10 is not
    assert resources.rows_that_fit(asked.append, 32, "cpu") == 8
    assert asked == [1, 2]


def test_fewer_rows_are_shown_and_count_by_token() -> None:
    study = TrainingSpeed(shapes=((4, 10),), textbook_shapes=(), rounds=1)
    values = {"rows": 4, "seconds": 1.0, "peak bytes": 1e9}
    halved = {"rows": 2, "seconds": 1.0, "peak bytes": 1e9}
    points = [point for point in study.points() if isinstance(point, TrainingStep)]
    results = {point: halved if point.stack == study.s4d else values for point in points}
    rows = {row[1]: row for row in table_rows(dict(study.show(results))["table.md"])}
    assert rows["S4D, H 256"][0] == "4 x 10 (2 rows fit)"
    assert rows["S4D, H 256"][3:6] == ["20", "2.00", "1.00"]
    assert rows["DS4D, H 256"][3:6] == ["40", "1.00", "0.50"]


@torch.no_grad()
def test_the_textbook_is_the_same_model() -> None:
    """What our speed is compared with computes what we compute, with the error of the paper's setting."""
    ssm = DelaySSM(3, 8, 50)
    assert relative_rms(textbook.kernel(ssm, 60), ssm.kernel(60)) <= 1e-3
    block = textbook.TextbookBlock(3, 8, 50)
    x = torch.randn(2, 60, 3)
    y = block.ssm(block.norm(x))
    expected = x + torch.nn.functional.glu(block.linear(torch.nn.functional.gelu(y)))
    assert relative_rms(block(x), expected) <= 1e-3


@pytest.mark.usefixtures("in_process")
def test_long_sequences(tmp_path: Path) -> None:
    content = make(LongSequences(lengths=(16, 64), stack=MATCHED), tmp_path)
    points = json.loads(content["points.json"])
    _, _, first, second = table_rows(content["table.md"])
    per_token = [entry["values"]["seconds"] / entry["point"]["length"] for entry in points]
    assert first[:1] + first[3:4] == ["16", "1.00"]
    assert second[2:4] == [f"{per_token[1] * 1e6:.1f}", f"{per_token[1] / per_token[0]:.2f}"]


@pytest.mark.usefixtures("in_process")
def test_model_speed(tmp_path: Path) -> None:
    study = ModelSpeed(tasks=("sum-variable",), models=("ds4d", "s4d"), scale="small", steps=1)
    content = make(study, tmp_path)
    rows = table_rows(content["table.md"])[2:]
    s4d = preset("sum-variable", "s4d", "small").parameters()
    assert [row[:3] for row in rows] == [["sum-variable", "DS4D", "57,598"], ["sum-variable", "S4D", f"{s4d:,}"]]
    assert rows[0][6] == "1.00"


def test_a_full_size_pass(tmp_path: Path) -> None:
    """The smallest of them, in a process of its own."""
    study = FullSize(benchmarks=("smnist",))
    assert [point.model for point in study.points()] == ["ds4d", "s4d"]
    values = study.measure(Pass("smnist", "ds4d"), tmp_path)
    assert values["parameters"] == 254_238
    assert values["forward"] > 0
    assert values["peak bytes"] > 1e8
    ((name, content),) = study.show({Pass("smnist", "ds4d"): values})
    assert name == "table.md"
    assert "| sMNIST | DS4D  | 784" in content.decode()


def test_kernel_speed() -> None:
    study = KernelSpeed(d_model=3, d_state=4, length=20)
    assert [point.implementation for point in study.points()] == list(LABELS)
    results = {KernelPass(name): {"seconds": s, "added bytes": 2e6} for name, s in (("textbook", 1.0), ("numba", 0.02))}
    rows = table_rows(dict(study.show(results))["table.md"])[2:]
    assert rows[1][1:] == ["20.0", "50.0", "2"]


@pytest.mark.parametrize("implementation", ["textbook", "eager"])
def test_a_kernel_pass(implementation: str) -> None:
    """In a process of its own, because it chooses the backend."""
    values = fresh.measure(KernelPass(implementation, 3, 4, 20))  # type: ignore[arg-type]
    assert values["seconds"] > 0
    assert values["added bytes"] >= 0


@pytest.mark.usefixtures("in_process")
def test_import_time(tmp_path: Path) -> None:
    content = make(ImportTime(rounds=1), tmp_path)
    (entry,) = json.loads(content["points.json"])
    seconds = f"{entry['values']['seconds']:.2f}"
    assert table_rows(content["table.md"])[2] == [seconds, seconds, "1"]


def test_generator_speed(tmp_path: Path) -> None:
    """In a process of its own, because it is bound to one core."""
    content = make(GeneratorSpeed(samples=(("ListOps", 10),)), tmp_path)
    (entry,) = json.loads(content["points.json"])
    milliseconds = entry["values"]["seconds per sample"] * 1e3
    assert table_rows(content["table.md"])[2][:3] == ["ListOps", f"{milliseconds:.2f}", "4.8"]


def test_gpu_binaries(tmp_path: Path) -> None:
    """The tests of the triton backend compile them; here is how they are shown."""
    study = GPUBinaries()
    points = study.points()
    assert len(points) == len(KERNELS) * len(GENERATIONS)
    results = {points[0]: {"registers": 90, "shared bytes": 512, "spilled bytes": 0}}
    assert table_rows(dict(study.show(results))["table.md"])[2] == ["transfer, float64", "sm_80", "90", "512", "0"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_study_for_a_gpu_says_that_there_is_none(tmp_path: Path) -> None:
    study = TrainingSpeed(device="cuda")
    assert study.name == "training-speed-cuda"
    # The profiler of a breakdown times the CPU.
    assert all(not isinstance(point, Breakdown) and point.device == "cuda" for point in study.points())
    assert "open an issue" in study.request
    with pytest.raises(ValueError, match="no CUDA GPU"):
        study.run(Places(tmp_path, tmp_path))
