"""Studies at toy size: their files exist and show the numbers of their runs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from delayssm import DS4D, Block, DelaySSM, Stack
from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import S4DConfig
from delayssm.system import kernel
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.report import tables
from delayssm_lab.report.collect import Cell, Record, Results
from delayssm_lab.studies.catalogue import studies
from delayssm_lab.studies.impulse import ImpulseResponses
from delayssm_lab.studies.mechanism import Mechanism, with_shortest_delays, without_branch
from delayssm_lab.studies.phase import Phase
from delayssm_lab.studies.stability import Stability, radius, share
from delayssm_lab.studies.synthetic import PaperCopy, Synthetic, comparison, mini_runs
from delayssm_lab.tasks.delayed import Copy, DelayedMemory
from delayssm_lab.training.evaluate import load_model
from delayssm_lab.training.run import Run
from tests.support.runs import LSTM, tiny
from tests.support.studies import make, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

S4D = StateSpaceSpec(depth=2, block=BlockConfig(layer=S4DConfig(8, 4)))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Working directory in which the studies of this file share their runs."""
    return tmp_path_factory.mktemp("work")


def test_tables_hold_any_text() -> None:
    lines = tables.markdown(["a", "size |x|"], [["1", "2"]]).splitlines()
    assert lines == ["| a | size \\|x\\| |", "| - | ---------- |", "| 1 | 2          |"]


def test_names_are_unique_and_nothing_is_done_in_the_beginning(tmp_path: Path) -> None:
    everything = studies()
    assert len({study.name for study in everything}) == len(everything)
    for study in everything:
        done, total = study.progress(tmp_path)
        assert total > 0
        assert done == (1 if study.name in ("phase", "stability", "pathfinder-images") else 0)
        assert study.results(tmp_path) == ("none yet", "unknown")


def test_phase(tmp_path: Path) -> None:
    study = Phase()
    content = make(study, tmp_path, tmp_path / "out")
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
    content = make(Stability(delays=(1, 3), resolution=6), tmp_path, tmp_path / "out")
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
    content = make(Mechanism(runs=(run,), samples=20), work, tmp_path / "out")
    assert set(content) == {"table.md", "points.json", "about.json"}
    (entry,) = json.loads(content["points.json"])
    model, _ = load_model(work / "mini" / run.name)
    before, after = (
        torch.cat([m.delays().detach().double() for m in version.modules() if isinstance(m, DelaySSM)])
        for version in (run.initial_model(), model)
    )
    assert entry["values"]["mean delay at the best"] == pytest.approx(float(after.mean()))
    assert entry["values"]["mean |change of delay|"] == pytest.approx(float((after - before).abs().mean()))
    assert entry["values"]["mean |change of mu|"] > 0
    rows = table_rows(content["table.md"])
    assert rows[2][:2] == [run.task.label, "DS4D, mini run"]
    assert rows[2][5] == f"{entry['values']['learned']:.3f}"
    assert rows[3][:2] == [run.task.label, "DS4D, paper"]


@torch.no_grad()
@pytest.mark.parametrize("kind", ["explicit", "absorbed"])
def test_ablations_change_what_they_say_and_nothing_else(kind: str) -> None:
    stack = Stack([Block(DS4D(3, 4, 20, branch_fraction=0.4, input=kind))])  # type: ignore[arg-type]
    ssm, D = stack.blocks[0].layer.ssm, stack.blocks[0].layer.ssm.D
    system = ssm._system()
    expected = kernel.kernel(system._replace(mu=torch.zeros_like(system.mu)), 50)[0].T
    diagonal = without_branch(stack).blocks[0].layer.ssm
    assert torch.equal(diagonal.D, D)
    assert torch.allclose(diagonal.kernel(50).double(), expected, rtol=1e-5, atol=1e-7)
    shortest = with_shortest_delays(stack).blocks[0].layer.ssm
    assert shortest.discretize().k.tolist() == [1, 1, 1]
    assert float(shortest.discretize().alpha.abs().max()) < 1e-12
    assert float(ssm.delays().min()) > 1  # the original is unchanged


def test_impulse_responses(work: Path, tmp_path: Path) -> None:
    runs = tiny(), tiny(S4D)
    content = make(ImpulseResponses(runs), work, tmp_path / "out")
    assert set(content) == {"ds4d.png", "s4d.png", "ds4d.json", "s4d.json", "about.json"}
    (delays,) = json.loads(content["ds4d.json"])["delays in steps"].values()
    model, _ = load_model(work / "mini" / runs[0].name)
    first = next(m for m in model.modules() if isinstance(m, DelaySSM))
    assert delays == pytest.approx(sorted(first.delays().tolist()))
    (peaks,) = json.loads(content["s4d.json"])["peaks in steps"].values()
    assert peaks == sorted(peaks)
    assert 0 <= peaks[0] <= peaks[-1] < runs[1].task.max_length


def test_synthetic_has_its_runs_above_the_papers(work: Path, tmp_path: Path) -> None:
    runs: tuple[Run, ...] = (tiny(), tiny(seed=1), tiny(LSTM), tiny(LSTM, lr=1e-2))
    content = make(Synthetic(runs=runs), work, tmp_path / "out")
    assert {"table.md", "curves.png", "delays.png", "runs.json", "index.html"} < set(content)
    cells = {entry["model"]: entry for entry in json.loads(content["accuracy.json"])}
    _, _, *rows = table_rows(content["table.md"])
    lstm, ds4d = cells["LSTM"], cells["DS4D"]
    assert rows == [
        ["LSTM, mini run", f"{lstm['accuracy']:.2f} (1 seed, 2 lr)"],
        ["LSTM, paper", "0.01 ± 0.00"],
        ["DS4D, mini run", f"{ds4d['accuracy']:.2f} ± {ds4d['std']:.2f} (2 seeds, 1 lr)"],
        ["DS4D, paper", "0.95 ± 0.00"],
    ]


def test_models_without_runs_are_left_out(work: Path, tmp_path: Path) -> None:
    study = Synthetic(runs=(tiny(), tiny(S4D, seed=7)))
    Synthetic(runs=study.runs[:1]).run(work)
    study.write(work, tmp_path / "out")  # the second run has not started
    about = json.loads((tmp_path / "out" / "about.json").read_text())
    assert (about["done"], about["total"]) == (1, 2)
    rows = dict(table_rows((tmp_path / "out" / "table.md").read_bytes()))
    assert rows["DS4D, mini run"].endswith("(1 seed, 1 lr)")
    assert not any(label.startswith("S4D") for label in rows)
    assert study.results(tmp_path / "out")[0].endswith(", 1 of 2")


def test_models_without_runs_on_a_task_have_a_dash() -> None:
    task, other = DelayedMemory(Copy(), (6, 6)), DelayedMemory(Copy(), (6, 8))
    runs = [replace(tiny(), task=task), replace(tiny(), task=other), replace(tiny(LSTM), task=task)]
    records = [Record(Path(), run, {}, [{"step": 1, "accuracy": 0.5}], {}) for run in runs]
    cells = {(r.run.task.label, r.run.model_label): Cell((r,), (1e-3,)) for r in records}
    results = Results(records, {task.label: task, other.label: other}, ["LSTM", "DS4D"], cells, [])
    rows = {label: values for label, *values in table_rows(comparison(results, "mini run").encode())}
    assert rows["LSTM, mini run"] == ["0.50 (1 seed, 1 lr)", "–"]
    assert rows["LSTM, paper"] == ["0.01 ± 0.00", "0.01 ± 0.00"]
    assert rows["DS4D, mini run"] == 2 * ["0.50 (1 seed, 1 lr)"]


def test_the_runs_of_the_synthetic_studies() -> None:
    runs = mini_runs()
    assert len(runs) == len({run.name for run in runs}) == 2 * 6 * (3 + 3 + 1 + 1 + 1 + 1)
    for model, seeds in {"DS4D": 3, "S4D": 3, "LSTM": 1, "Mamba": 1, "GPT-2": 1, "Llama": 1}.items():
        mine = [run for run in runs if run.label == model]
        assert len(mine) == 12 * seeds
        assert len({(run.task.label, run.training.lr) for run in mine}) == 12
    assert [run.model.d_model for run in PaperCopy().runs] == [133, 75, 143]
    assert {run.training.steps for run in PaperCopy().runs} == {2000}
