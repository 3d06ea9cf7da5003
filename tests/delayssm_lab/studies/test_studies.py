"""Studies at toy size: their files exist and show the numbers of their runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import delayssm
from delayssm import Block, DelaySSM, Stack
from delayssm.layers.block import BlockConfig
from delayssm.layers.layer import S4DConfig
from delayssm.system import kernel
from delayssm_lab.models.specs import Spec, StateSpaceSpec
from delayssm_lab.report import tables
from delayssm_lab.report.collect import group
from delayssm_lab.studies.catalogue import studies
from delayssm_lab.studies.contest import SCREENING, SMALL_SHELF, Contest
from delayssm_lab.studies.impulse import ImpulseResponses
from delayssm_lab.studies.mechanism import Mechanism, with_empty_branch, with_shortest_delays, without_branch
from delayssm_lab.studies.phase import Phase
from delayssm_lab.studies.stability import Stability, radius, share
from delayssm_lab.studies.synthetic import PaperScale, Synthetic, comparison, paper_runs, small_contests
from delayssm_lab.studies.trained import Shelf, of_this_code
from delayssm_lab.study import Entry, Journal, Places
from delayssm_lab.tasks.delayed import Copy, DelayedMemory
from delayssm_lab.training import fingerprint
from delayssm_lab.training.record import Record
from delayssm_lab.training.run import Run, to_json
from tests.support.runs import DS4D, LSTM, create, tiny
from tests.support.studies import make, make_at, table_rows

pytestmark = pytest.mark.usefixtures("one_thread")

S4D = StateSpaceSpec(depth=2, block=BlockConfig(layer=S4DConfig(8, 4)))


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    """Directories in which the studies of this file share their runs."""
    place = tmp_path_factory.mktemp("places")
    return Places(place / "work", place / "results")


def test_tables_hold_any_text() -> None:
    lines = tables.markdown(["a", "size |x|"], [["1", "2"]]).splitlines()
    assert lines == ["| a | size \\|x\\| |", "| - | ---------- |", "| 1 | 2          |"]


def test_names_are_unique_and_nothing_is_done_in_the_beginning(tmp_path: Path) -> None:
    everything, places = studies(), Places(tmp_path, tmp_path)
    assert len({study.name for study in everything}) == len(everything)
    for study in everything:
        done, total = study.progress(places)
        assert total > 0
        assert done == (1 if study.name in ("phase", "stability", "pathfinder-images") else 0)
        assert study.done(places) in (f"0 of {total}", "no steps")
        assert study.results(places) == ("none yet", "unknown")


def test_phase(tmp_path: Path) -> None:
    study = Phase()
    content = make(study, tmp_path)
    assert set(content) == {"phase.png", "responses.json", "about.json"}
    x, h = np.random.default_rng(0).normal(size=60), np.zeros(60)
    for t in range(60):
        h[t] = 0.75 * (h[t - 1] if t else 0) - 0.2 * (h[t - 16] if t >= 16 else 0) + x[t]
    assert np.abs(study.response(x, -0.2) - h).max() < 1e-12
    spike = json.loads(content["responses.json"])["(b) a narrow spike, phase pi"]
    echo = np.array(spike["with event"]) - np.array(spike["background"])
    assert echo[study.onset + 2] > 1  # the event
    assert echo[study.onset + study.k + 3] < -1  # comes back with the opposite sign


def test_the_list_of_studies_tells_what_is_there(tmp_path: Path) -> None:
    study, places = Phase(), Places(tmp_path / "work", tmp_path / "results")
    make_at(study, places)
    out = places.results / "phase"
    assert study.results(places)[0].startswith(f"{out} of 20")
    about = json.loads((out / "about.json").read_text())
    assert about["files"] == ["phase.png", "responses.json"]
    (out / "about.json").write_text(json.dumps({**about, "done": 3, "total": 3}))
    assert study.results(places)[0].endswith(", by an earlier version of the study")
    (out / "phase.png").unlink()
    assert study.results(places)[0] == f"{out} has lost phase.png"
    (out / "about.json").write_text("{}")
    assert "about.json is damaged" in study.results(places)[0]
    (out / "about.json").write_text("{")
    assert "about.json is damaged" in study.results(places)[0]


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    entry = Entry({"n": 1}, {"seconds": 2.0}, 3.0, "2026-01-01", {})
    journal = Journal(tmp_path / "study.jsonl")
    journal.add(entry)
    with journal.path.open("a") as file:
        file.write('{"point"')  # cut off by a crash
    assert journal.entries() == [entry]
    for text in ('{"point"', '{"point": {}}', "7"):
        journal.path.write_text(f"{text}\n")
        with pytest.raises(ValueError, match=r"line 1 of .*study\.jsonl is damaged .*delete the line to measure"):
            journal.entries()


def test_stability(tmp_path: Path) -> None:
    content = make(Stability(delays=(1, 3), resolution=6), tmp_path)
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


def _contest(model: Spec = DS4D, **settings: object) -> Contest:
    return Contest(tiny(model, **settings), rates=(1e-3, 1e-2), seeds=(0, 1))


@pytest.mark.slow
def test_mechanism(places: Places) -> None:
    contest, full = _contest(), tiny(seed=3)
    content = make_at(Mechanism(contests=(contest,), full_size=(full,), samples=20), places)
    assert set(content) == {"table.md", "values.json", "about.json"}
    run = contest.finals(of_this_code(places))[0]
    model = SMALL_SHELF.store(places).model(run)
    before, after = (
        torch.cat([m.delays().detach().double() for m in version.modules() if isinstance(m, DelaySSM)])
        for version in (run.initial_model(), model)
    )
    values = json.loads(content["values.json"])[f"{run.name}, small run"]
    assert values["mean delay at the best"] == pytest.approx(float(after.mean()))
    assert values["mean |change of delay|"] == pytest.approx(float((after - before).abs().mean()))
    assert values["mean |change of mu|"] > 0
    rows = table_rows(content["table.md"])[2:]
    assert [row[:2] for row in rows] == [
        [run.task.label, f"DS4D, {source}"] for source in ("small run", "full-size run", "paper")
    ]
    assert rows[0][5] == f"{values['accuracy']:.3f}"


@torch.no_grad()
@pytest.mark.parametrize("n_ssm", [None, 1])
@pytest.mark.parametrize("kind", ["explicit", "absorbed"])
def test_ablations_change_what_they_say_and_nothing_else(kind: str, n_ssm: int | None) -> None:
    stack = Stack([Block(delayssm.DS4D(3, 4, 20, branch_fraction=0.4, input=kind, n_ssm=n_ssm))])  # type: ignore[arg-type]
    ssm, D = stack.blocks[0].layer.ssm, stack.blocks[0].layer.ssm.D
    system = ssm._system()
    expected = kernel.kernel(system._replace(mu=torch.zeros_like(system.mu)), 50)[0].T
    diagonal = without_branch(stack).blocks[0].layer.ssm
    assert torch.equal(diagonal.D, D)
    assert torch.allclose(diagonal.kernel(50).double(), expected, rtol=1e-5, atol=1e-7)
    empty = with_empty_branch(stack).blocks[0].layer.ssm.discretize()
    assert float(empty.mu.abs().max()) < 1e-20
    torch.testing.assert_close(empty.lam.abs(), system.lam.norm(dim=-1) + system.mu.norm(dim=-1))  # the whole budget
    shortest = with_shortest_delays(stack).blocks[0].layer.ssm
    assert shortest.discretize().k.tolist() == [1, 1, 1]
    assert float(shortest.discretize().alpha.abs().max()) < 1e-12
    assert float(ssm.delays().min()) > 1  # the original is unchanged


@pytest.mark.slow
def test_impulse_responses(places: Places) -> None:
    contests = _contest(), _contest(S4D)
    content = make_at(ImpulseResponses(contests=contests, full_size=(tiny(seed=3),)), places)
    pictures = "ds4d", "ds4d-full-size", "s4d"
    assert set(content) == {f"{name}.{kind}" for name in pictures for kind in ("png", "json")} | {"about.json"}
    ds4d, s4d = (contest.finals(of_this_code(places))[0] for contest in contests)
    delays = json.loads(content["ds4d.json"])["delays in steps"][ds4d.name]
    first = next(m for m in SMALL_SHELF.store(places).model(ds4d).modules() if isinstance(m, DelaySSM))
    assert delays == pytest.approx(sorted(first.delays().tolist()))
    peaks = json.loads(content["s4d.json"])["peaks in steps"][s4d.name]
    assert peaks == sorted(peaks)
    assert 0 <= peaks[0] <= peaks[-1] < s4d.task.max_length


@pytest.mark.slow
def test_synthetic_has_its_runs_above_the_papers(places: Places) -> None:
    study = Synthetic((_contest(), _contest(LSTM)))
    content = make_at(study, places)
    assert set(content) == {
        "table.md", "rates.md", "curves.png", "delays.png", "index.html", "accuracy.md", "accuracy.json", "about.json",
    }  # fmt: skip
    cells = {entry["model"]: entry for entry in json.loads(content["accuracy.json"])}
    _, _, *rows = table_rows(content["table.md"])
    expected = []
    for model, paper in (("LSTM", "0.01 ± 0.00"), ("DS4D", "0.95 ± 0.00")):
        cell = cells[model]
        text = f"{cell['accuracy']:.2f} ± {cell['std']:.2f}"
        expected += [[f"{model}, small run", text], [f"{model}, paper", paper]]
    assert rows == expected
    rates = table_rows(content["rates.md"])[2:]
    assert [row[:2] for row in rates] == [[model, rate] for model in ("LSTM", "DS4D") for rate in ("0.001", "0.01")]
    bold = [(model, float(rate)) for model, rate, accuracy in rates if accuracy.startswith("**")]
    assert bold == [(model, cells[model]["lr"]) for model in ("LSTM", "DS4D")]
    # On another machine nothing is trained again, except what was lost.
    before = study.progress(places)
    elsewhere = Places(places.work.with_name("elsewhere"), places.results)
    lost = study.contests[1].finals(of_this_code(places))[1]
    record = places.results / "runs" / "small" / f"{lost.name}.json"
    record.unlink()
    assert study.progress(elsewhere) == (before[0] - 1, before[1])
    again = make_at(study, elsewhere)
    assert again["table.md"] == content["table.md"]
    assert [path.name for path in (elsewhere.work / "small").iterdir()] == [lost.name]


def test_models_without_runs_are_left_out(places: Places) -> None:
    study = PaperScale((tiny(), tiny(S4D, seed=7)))
    PaperScale(study.runs[:1]).run(places)
    study.write(places)  # the second run has not started
    about = json.loads((places.results / study.name / "about.json").read_text())
    assert (about["done"], about["total"]) == (1, 2)
    rows = dict(table_rows((places.results / study.name / "table.md").read_bytes()))
    assert re.fullmatch(r"0\.\d\d", rows["DS4D, full-size run"])
    assert not any(label.startswith("S4D") for label in rows)
    assert study.results(places)[0].endswith(", 1 of 2")


def _record(run: Run, accuracy: float = 0.5) -> Record:
    metrics = [{"step": 1, "accuracy": accuracy, "seconds": 1.0}]
    return Record(run, {"revision": "x", "threads": "1"}, "2026-01-01", metrics, {"seconds": 1.0}, [], [], [])


def _keep(shelf: Shelf, record: Record, places: Places, of_this_code: bool = True) -> None:
    """Write the record of a run that has not been trained, as one of this code or of other code."""
    own = fingerprint.compute(record.run)
    content = replace(record, fingerprint=own if of_this_code else [2 * value + 1 for value in own]).to_json()
    path = places.results / "runs" / shelf.name / f"{record.run.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_about_counts_what_is_shown(tmp_path: Path) -> None:
    """The list of studies counts runs of any code, because that is fast; results have those of this code only."""
    place = Places(tmp_path / "work", tmp_path / "results")
    runs = tiny(seed=1), tiny(seed=2)
    study = PaperScale(runs)
    for run in runs:
        _keep(study.shelf, _record(run), place, of_this_code=False)
    with pytest.raises(ValueError, match="all 2 finished steps of copy-at-paper-scale were done by other code, so"):
        study.write(place)
    _keep(study.shelf, _record(runs[0]), place)
    study.write(place)
    about = json.loads((place.results / study.name / "about.json").read_text())
    assert (about["done"], about["total"]) == (1, 2)
    assert study.progress(place) == (2, 2)
    with pytest.raises(ValueError, match="no step of copy-at-paper-scale is finished, so"):
        study.write(Places(tmp_path, tmp_path / "nothing"))


def test_the_time_of_contests_has_the_runs_that_decide(tmp_path: Path) -> None:
    """Two rates are level after the screening: each has a whole run of the first seed, and the better one a second."""
    place, contest = Places(tmp_path / "work", tmp_path / "results"), _contest(steps=12)
    study, find = Synthetic((contest,)), of_this_code(place)
    for run in contest.screening(find):
        _keep(SCREENING, _record(run), place)
    assert len(contest.deciding(find)) == 2
    for run, accuracy in zip(contest.deciding(find), (0.5, 0.6), strict=True):
        _keep(SMALL_SHELF, _record(run, accuracy), place)
    assert study.progress(place) == study.shown(place) == (2 + 1, 2 + 2)
    assert study.seconds(place) == 2 + 2
    _keep(SMALL_SHELF, _record(contest.finals(find)[1]), place)
    assert study.shown(place) == (4, 4)
    assert study.seconds(place) == 2 + 3


def test_models_without_runs_on_a_task_have_an_empty_cell() -> None:
    task, other = DelayedMemory(Copy(), (6, 6)), DelayedMemory(Copy(), (6, 8))
    runs = [replace(tiny(), task=task), replace(tiny(), task=other), replace(tiny(LSTM), task=task)]
    results = group([_record(run) for run in runs])
    rows = {label: values for label, *values in table_rows(comparison(results, "small run").encode())}
    assert rows["LSTM, small run"] == ["0.50", ""]
    assert rows["LSTM, paper"] == ["0.01 ± 0.00", "0.01 ± 0.00"]
    assert rows["DS4D, small run"] == 2 * ["0.50"]


def test_a_contest_takes_the_best_rate_and_looks_again_where_rates_are_level() -> None:
    contest = Contest(tiny(steps=12), rates=(1e-3, 2e-3, 4e-3))
    results: dict[tuple[Shelf, Run], float] = {}

    def find(shelf: Shelf, run: Run) -> Record | None:
        return _record(run, results[shelf, run]) if (shelf, run) in results else None

    screening = [(SCREENING, run) for run in contest.screening(find)]
    assert contest.missing(find) == screening
    assert {(run.training.steps, run.seed) for _, run in screening} == {(3, 0)}
    results |= dict(zip(screening, (0.1, 0.5, 0.4), strict=True))
    finals = contest.missing(find)
    assert [(run.training.lr, run.seed, run.training.steps) for _, run in finals] == [(2e-3, s, 12) for s in (0, 1, 2)]
    results[screening[2]] = 0.495
    again = contest.missing(find)
    assert [(run.training.lr, run.seed, run.training.steps) for _, run in again] == [(2e-3, 0, 12), (4e-3, 0, 12)]
    results |= {again[0]: 0.6, again[1]: 0.7}
    assert [(run.training.lr, run.seed) for _, run in contest.missing(find)] == [(4e-3, 1), (4e-3, 2)]
    results |= dict.fromkeys(contest.missing(find), 0.7)
    assert contest.missing(find) == []
    assert {run.training.lr for run in contest.finals(find)} == {4e-3}


def test_what_the_synthetic_studies_plan() -> None:
    contests = small_contests()
    assert len(contests) == 36
    assert {contest.rates for contest in contests} == {(2e-4, 1e-3, 4e-3)}
    assert {contest.seeds for contest in contests} == {(0, 1, 2)}
    assert len({(contest.run.task, contest.run.model_label) for contest in contests}) == 36
    names = [run.name for run in paper_runs()]
    assert len(set(names)) == len(names) == 9
    assert {run.training.lr for run in paper_runs()} == {1e-3}


def test_runs_that_other_code_began_are_refused(places: Places, tmp_path: Path) -> None:
    run, place = tiny(seed=11), Places(tmp_path / "work", tmp_path / "results")
    directory = create(place.work / "paper" / run.name, run)
    content = {"run": to_json(run), "values": [1.0, 2.0, 3.0, 4.0]}
    (directory / "fingerprint.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"{run.name} was begun by other code than this; delete it"):
        PaperScale((run,)).run(place)
