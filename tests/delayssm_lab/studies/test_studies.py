"""Studies at toy size: files appear, their numbers are those of the measurements, and an interrupted one goes on."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from delayssm import DelaySSM
from delayssm.system import kernel
from delayssm_lab.measure import speed
from delayssm_lab.measure.efficiency import Efficiency
from delayssm_lab.measure.fft_accuracy import FFTAccuracy
from delayssm_lab.measure.speed import Sizes, Training
from delayssm_lab.models import specs
from delayssm_lab.report import tables
from delayssm_lab.studies import paper
from delayssm_lab.studies.catalogue import studies
from delayssm_lab.studies.impulse import ImpulseResponses
from delayssm_lab.studies.mechanism import Mechanism, with_shortest_delays, without_branch
from delayssm_lab.studies.phase import Phase
from delayssm_lab.studies.stability import Stability, radius, share
from delayssm_lab.studies.study import Study
from delayssm_lab.studies.synthetic import PaperCopy, Synthetic, mini_runs
from delayssm_lab.training.evaluate import initial_model, load_model
from delayssm_lab.training.run import Run
from tests.support.runs import LSTM, tiny

pytestmark = pytest.mark.usefixtures("one_thread")

S4D = specs.S4D(d_model=8, depth=2, d_state=4)
ACCURACY = FFTAccuracy(lengths=(16, 48), seeds=(0, 1), depth=2, d_model=4, d_state=4)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the studies of this file share their runs."""
    return tmp_path_factory.mktemp("work")


def _make(study: Study, work: Path, out: Path) -> dict[str, bytes]:
    study.run(work)
    study.write(work, out)
    about = json.loads((out / "about.json").read_text())
    assert about["command"] == f"delayssm reproduce {study.name}"
    assert about["done"] == about["total"]
    assert about["environment"]["machine"]
    content = {path.name: path.read_bytes() for path in out.iterdir()}
    assert all(data.startswith(b"\x89PNG") for name, data in content.items() if name.endswith(".png"))
    return content


def _rows(table: bytes) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.decode().splitlines()]


def test_tables_hold_any_text() -> None:
    lines = tables.markdown(["a", "size |x|"], [["1", "2"]]).splitlines()
    assert lines == ["| a | size \\|x\\| |", "| - | ---------- |", "| 1 | 2          |"]


def test_names_are_unique_and_nothing_is_done_in_the_beginning(tmp_path: Path) -> None:
    found = studies()
    assert len({study.name for study in found}) == len(found)
    for study in found:
        done, total = study.progress(tmp_path)
        assert total > 0
        assert done == (1 if study.name in ("phase", "stability", "pathfinder-images") else 0)
        assert study.results(tmp_path) == ("none yet", "unknown")


def test_fft_accuracy(tmp_path: Path) -> None:
    content = _make(ACCURACY, tmp_path / "work", tmp_path / "out")
    assert set(content) == {"table.md", "errors.png", "points.json", "about.json"}
    points = json.loads(content["points.json"])
    assert [p["point"] for p in points] == [{"length": n, "seed": s} for n in (16, 48) for s in (0, 1)]
    again = ACCURACY.measure(ACCURACY.points()[2], tmp_path)
    assert points[2]["found"] == again
    assert json.loads(content["about.json"])["environment"] == points[-1]["environment"]
    assert 0 < again["relative RMSE, ours"] < again["relative RMSE, paper's setting"] / 10
    mean = sum(p["found"]["relative RMSE, ours"] for p in points[:2]) / 2
    (row,) = (row for row in _rows(content["table.md"]) if row[0] == "relative RMSE, our setting, our code")
    assert row[1].startswith(f"{mean:.2e} ± ")


def test_the_numbers_of_the_paper_stay_in_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = FFTAccuracy(lengths=(1024,), seeds=(0, 1), depth=1, d_model=2, d_state=2)
    before = _make(study, tmp_path / "work", tmp_path / "before")
    monkeypatch.setattr(paper, "FFT_RELATIVE_RMSE", {1024: (4.2, 0.0)})
    study.write(tmp_path / "work", tmp_path / "after")
    tables = [_rows(before["table.md"]), _rows((tmp_path / "after" / "table.md").read_bytes())]
    changed = [old[0] for old, new in zip(*tables, strict=True) if old != new and old[0]]
    assert [name for name in changed if not name.startswith("-")] == ["relative RMSE, as the paper reports"]


def test_an_interrupted_study_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = FFTAccuracy.measure
    asked: list[object] = []

    def interrupted(self: FFTAccuracy, point: object, work: Path) -> dict[str, float]:
        asked.append(point)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return measure(self, point, work)  # type: ignore[arg-type]

    monkeypatch.setattr(FFTAccuracy, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ACCURACY.run(tmp_path)
    assert ACCURACY.progress(tmp_path) == (2, 4)
    journal = ACCURACY.journal(tmp_path).path
    journal.write_text(journal.read_text() + '{"point": {"len')  # as a crash would leave it
    assert ACCURACY.progress(tmp_path) == (2, 4)
    ACCURACY.run(tmp_path)
    assert asked == [*ACCURACY.points()[:3], *ACCURACY.points()[2:]]
    assert ACCURACY.progress(tmp_path) == (4, 4)


def test_phase(tmp_path: Path) -> None:
    study = Phase()
    content = _make(study, tmp_path, tmp_path / "out")
    assert set(content) == {"phase.png", "responses.json", "about.json"}
    x, h = np.random.default_rng(0).normal(size=60), np.zeros(60)
    for t in range(60):
        h[t] = 0.75 * (h[t - 1] if t else 0) - 0.2 * (h[t - 16] if t >= 16 else 0) + x[t]
    assert np.abs(study.response(x, -0.2) - h).max() < 1e-12
    spike = json.loads(content["responses.json"])["(b) a narrow spike, phase pi"]
    echo = np.array(spike["with event"]) - np.array(spike["background"])
    assert echo[study.onset + 2] > 1  # the event
    assert echo[study.onset + study.k + 3] < -1  # comes back with the opposite sign


def test_stability(tmp_path: Path) -> None:
    content = _make(Stability(delays=(1, 3), resolution=6), tmp_path, tmp_path / "out")
    assert set(content) == {"stability.png", "table.md", "shares.json", "about.json"}
    shares = json.loads(content["shares.json"])
    assert list(shares["in phase"].values()) == [1.0, 1.0]
    assert all(value < 1 for value in shares["in opposition"].values())


@pytest.mark.parametrize(("lam", "mu", "k"), [(0.9, 0.05j, 3), (0.5, -0.7, 5), (0.3, 0.6, 1), (0.9, 0.4, 2)])
def test_the_largest_root_is_the_growth_of_the_recurrence(lam: float, mu: complex, k: int) -> None:
    h = np.zeros(4000, np.complex128)
    h[0] = 1
    for t in range(1, len(h)):
        h[t] = lam * h[t - 1] + (mu * h[t - k] if t >= k else 0)
        if t % 50 == 0:  # stay within range
            scale = np.abs(h[t - 49 : t + 1]).max()
            h[: t + 1] /= scale
    sizes = [np.abs(h[s : s + 25]).max() for s in (len(h) - 45, len(h) - 25)]
    assert (sizes[1] / sizes[0]) ** (1 / 20) == pytest.approx(radius(lam, mu, k), rel=2e-2)


def test_share_counts_what_is_stable() -> None:
    sizes = np.array([0.25, 0.75])
    assert share(np.array([[0.5, 0.9], [0.9, 1.2]]), sizes) == pytest.approx(1 / 3)


def test_mechanism(work: Path, tmp_path: Path) -> None:
    run = tiny()
    content = _make(Mechanism(runs=(run,), samples=20), work, tmp_path / "out")
    assert set(content) == {"table.md", "points.json", "about.json"}
    (entry,) = json.loads(content["points.json"])
    model, _ = load_model(work / "mini" / run.name)
    before, after = (
        torch.cat([m.delays().detach().double() for m in part.modules() if isinstance(m, DelaySSM)])
        for part in (initial_model(run), model)
    )
    assert entry["found"]["mean delay at the best"] == pytest.approx(float(after.mean()))
    assert entry["found"]["mean |change of delay|"] == pytest.approx(float((after - before).abs().mean()))
    assert entry["found"]["mean |change of mu|"] > 0
    rows = _rows(content["table.md"])
    assert rows[2][:2] == [run.task.label, "ours, mini"]
    assert rows[2][5] == f"{entry['found']['learned']:.3f}"
    assert rows[3][1] == "paper"


@torch.no_grad()
@pytest.mark.parametrize("kind", ["explicit", "absorbed"])
def test_ablations_change_what_they_say_and_nothing_else(kind: str) -> None:
    from delayssm import DS4D, Block, Stack

    stack = Stack([Block(DS4D(3, 4, 20, branch_fraction=0.4, input=kind))])  # type: ignore[arg-type]
    ssm, D = stack.blocks[0].layer.ssm, stack.blocks[0].layer.ssm.D
    system = ssm._system()
    expected = kernel.kernel(system._replace(mu=torch.zeros_like(system.mu)), 50)[0]
    found = without_branch(stack).blocks[0].layer.ssm
    assert torch.equal(found.D, D)
    assert torch.allclose(found.kernel(50).double(), expected, rtol=1e-5, atol=1e-7)
    shortest = with_shortest_delays(stack).blocks[0].layer.ssm
    assert shortest.discretize().k.tolist() == [1, 1, 1]
    assert float(shortest.discretize().alpha.abs().max()) < 1e-12
    assert float(ssm.delays().min()) > 1  # the original is as it was


def test_impulse_responses(work: Path, tmp_path: Path) -> None:
    runs = (tiny(),), (tiny(S4D),)
    content = _make(ImpulseResponses(*runs), work, tmp_path / "out")
    assert set(content) == {"ds4d.png", "s4d.png", "ds4d.json", "s4d.json", "about.json"}
    (delays,) = json.loads(content["ds4d.json"])["delays in steps"].values()
    model, _ = load_model(work / "mini" / runs[0][0].name)
    first = next(m for m in model.modules() if isinstance(m, DelaySSM))
    assert delays == pytest.approx(sorted(first.delays().tolist()))
    (peaks,) = json.loads(content["s4d.json"])["peaks in steps"].values()
    assert peaks == sorted(peaks)
    assert 0 <= peaks[0] <= peaks[-1] < runs[1][0].task.max_length


def test_synthetic_has_ours_above_the_papers(work: Path, tmp_path: Path) -> None:
    runs: tuple[Run, ...] = (tiny(), tiny(seed=1), tiny(LSTM), tiny(LSTM, lr=1e-2))
    content = _make(Synthetic(runs=runs), work, tmp_path / "out")
    assert {"table.md", "curves.png", "delays.png", "runs.json", "index.html"} < set(content)
    cells = {entry["model"]: entry for entry in json.loads(content["accuracy.json"])}
    rows = {(row[0], row[1]): row[2] for row in _rows(content["table.md"])}
    ours = cells["DS4D"]
    assert rows["DS4D", "ours"] == f"{ours['accuracy']:.2f} ± {ours['std']:.2f} (2 seeds, 1 lr)"
    assert rows["LSTM", "ours"] == f"{cells['LSTM']['accuracy']:.2f} (1 seed, 2 lr)"
    assert [label for label in _rows(content["table.md"]) if label[1] == "paper"] == [
        ["", "paper", "0.01 ± 0.00"],
        ["", "paper", "0.95 ± 0.00"],
    ]


def test_unfinished_runs_are_marked(work: Path, tmp_path: Path) -> None:
    study = Synthetic(runs=(tiny(), tiny(S4D, seed=7)))
    Synthetic(runs=study.runs[:1]).run(work)
    study.write(work, tmp_path / "out")  # the second has not begun
    about = json.loads((tmp_path / "out" / "about.json").read_text())
    assert (about["done"], about["total"]) == (1, 2)
    rows = {(row[0], row[1]): row[2] for row in _rows((tmp_path / "out" / "table.md").read_bytes())}
    assert rows["DS4D", "ours"].endswith("(1 seed, 1 lr)")
    assert rows["S4D", "ours"] == "not run"
    assert study.results(tmp_path / "out")[0].endswith(", 1 of 2")


def test_the_runs_of_the_synthetic_studies() -> None:
    runs = mini_runs()
    assert len(runs) == len({run.name for run in runs}) == 2 * 6 * (3 + 3 + 1 + 1 + 1 + 1)
    for model, seeds in {"DS4D": 3, "S4D": 3, "LSTM": 1, "Mamba": 1, "GPT-2": 1, "Llama": 1}.items():
        mine = [run for run in runs if run.label == model]
        assert len(mine) == 12 * seeds
        assert len({(run.task.label, run.training.lr) for run in mine}) == 12
    assert [run.model.d_model for run in PaperCopy().runs] == [133, 75, 143]
    assert {run.training.steps for run in PaperCopy().runs} == {2000}


def test_efficiency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measured(self: Efficiency, point: speed.Point, work: Path) -> dict[str, float]:
        if point == study.points()[0]:
            return in_a_process_of_its_own(self, point, work)
        return point.measure()  # without loading torch again

    in_a_process_of_its_own = Efficiency.measure
    monkeypatch.setattr(Efficiency, "measure", measured)
    small = {"depth": 1, "d_state": 4, "d_model": 6}
    study = Efficiency(
        lengths=(32, 64),
        batch_size=2,
        rounds=1,
        tokens=18,
        s4d=Sizes(**small, delayed=False),  # type: ignore[arg-type]
        ds4d=Sizes(**small),  # type: ignore[arg-type]
        matched=Sizes(**{**small, "d_model": 4}),  # type: ignore[arg-type]
    )
    content = _make(study, tmp_path / "work", tmp_path / "out")
    assert set(content) == {"table.md", "efficiency.png", "points.json", "about.json"}
    points = json.loads(content["points.json"])
    assert len(points) == 2 * (3 + 7)
    rows = {(row[0], row[1]): row[2:] for row in _rows(content["table.md"])}
    for entry in points:
        point, found = entry["point"], entry["found"]
        column = study.lengths.index(point["length"])
        name = f"{'DS4D' if point['sizes']['delayed'] else 'S4D'}, H {point['sizes']['d_model']}"
        if "memory" in point:
            name += f", {point['memory']}" if point["sizes"]["delayed"] else ""
            shown = rows["decoding, MB of state per layer", name][column]
            assert float(shown) == pytest.approx(found["state bytes"] / 1e6, rel=1e-2)
        else:
            assert found["batch"] == 2
            assert rows["training, tokens/s", name][column] == f"{found['tokens/s']:,.0f}"
    dense = next(e for e in points if e["point"].get("memory") == "dense" and e["point"]["length"] == 64)
    assert dense["found"]["state bytes"] == 64 * 6 * 4 * 4  # all states of all steps


def test_a_batch_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([100, 110])
    monkeypatch.setattr(speed, "peak_memory", lambda device: next(peaks))
    monkeypatch.setattr(speed, "_available", lambda device: 220)
    asked: list[int] = []
    point = Training(Sizes(), 8, 32, 0, "cpu")
    assert point._rows_that_fit(asked.append) == 8  # 100 + 7 x 10 is within 85 % of 220, 100 + 15 x 10 is not
    assert asked == [1, 2]
