"""Reports show the numbers of their runs, and a browser can show the page."""

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from delayssm_lab.display import Silent
from delayssm_lab.recipes.delayed import preset
from delayssm_lab.report import figures, page
from delayssm_lab.report.collect import collect, group
from delayssm_lab.report.drawing import CHANCE, OTHERS, STYLES, styles
from delayssm_lab.tasks.images import SequentialMNIST
from delayssm_lab.tasks.task import Split
from delayssm_lab.training import trainer as training
from delayssm_lab.training.record import LayerDelays, Record
from delayssm_lab.training.run import Run
from tests.support.runs import LSTM, TASK, create, read_metrics, tiny

pytestmark = pytest.mark.usefixtures("one_thread")

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """Directory of runs: DS4D with two seeds, LSTM with two learning rates, and a run that has not started."""
    root = tmp_path_factory.mktemp("runs")
    for run in (tiny(), tiny(seed=1), tiny(LSTM, steps=40), tiny(LSTM, lr=2e-2, steps=40)):
        training.train(create(root / run.name, run), Silent())
    create(root / "later", tiny(seed=2))
    return root


def _metrics(directory: Path) -> list[float]:
    return [entry["accuracy"] for entry in read_metrics(directory)]


def test_the_numbers_are_those_of_the_runs(runs: Path, tmp_path: Path) -> None:
    path = page.write([runs], tmp_path / "report")
    assert {p.name for p in path.parent.iterdir()} == {
        "index.html", "curves.png", "delays.png", "accuracy.md", "accuracy.json",
    }  # fmt: skip
    seeds = [max(_metrics(runs / f"copy-variable-ds4d-lr0.001-seed{seed}")) for seed in (0, 1)]
    mean, std = sum(seeds) / 2, abs(seeds[0] - seeds[1]) / 2**0.5
    rates = {lr: max(_metrics(runs / f"copy-variable-lstm-lr{lr:g}-seed0")) for lr in (1e-3, 2e-2)}
    lr = max(rates, key=lambda rate: rates[rate])
    cells = {entry["model"]: entry for entry in json.loads((path.parent / "accuracy.json").read_text())}
    assert cells["DS4D"]["accuracy"] == pytest.approx(mean)
    assert cells["DS4D"]["std"] == pytest.approx(std)
    assert cells["LSTM"]["accuracy"] == rates[lr]
    assert cells["LSTM"]["lr"] == lr
    table = (path.parent / "accuracy.md").read_text()
    assert f"{mean:.2f} ± {std:.2f}" in table
    html = path.read_text()
    assert f"{mean:.2f} ± {std:.2f}" in html
    assert "lr 0.001,\n2 seeds" in html
    assert "Not evaluated yet: later" in html
    assert "<title>Delayed memory · delayssm report</title>" in html
    assert f"<td>chance level</td><td>{TASK.chance_level():.2f}</td>" in html


def test_best_and_second_are_marked(runs: Path, tmp_path: Path) -> None:
    results = collect([runs])
    (task,) = results.tasks
    first, second = results.ranked(task, 0), results.ranked(task, 1)
    means = {model: round(results.cells[task, model].mean, 2) for model in results.models}
    assert all(means[model] == max(means.values()) for model in first)
    assert first | second == set(means)
    assert "**" in page.to_markdown(results)


def test_answers_are_shown(runs: Path, tmp_path: Path) -> None:
    html = page.write([runs / "copy-variable-ds4d-lr0.001-seed0"], tmp_path).read_text()
    row = re.search(r"<th>target</th>(.*?)</tr>", html, re.DOTALL)
    assert row is not None
    targets = TASK.batch(0, Split.VALIDATION, [0]).targets[0].tolist()
    assert re.findall(r"<td>(\d+)</td>", row[1]) == [str(token) for token in targets]


def test_nothing_to_report(tmp_path: Path, runs: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there are no runs"):
        collect([tmp_path])
    with pytest.raises(ValueError, match="none of these runs has an evaluation"):
        collect([runs / "later"])


def _record(run: Run, delays: list[LayerDelays], accuracy: float = 0.5) -> Record:
    metrics = [{"step": step, "accuracy": accuracy, "seconds": 1.0} for step in (5, 10)]
    return Record(run, {"revision": "x", "threads": "1"}, "2026-01-01", metrics, None, [], delays, [])


def test_a_report_on_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequentialMNIST, "chance_level", lambda task: 0.1)
    run = preset("smnist", "ds4d", "small")
    results = group([_record(run, [[[28.0] * 5, [28.0, 29.0, 27.0, 30.0, 28.5]]])])
    html = page.contents(results)["index.html"].decode()
    assert "<title>General benchmarks · delayssm report</title>" in html
    assert "delayed-memory" not in html
    figure = figures.learned_delays(results)
    assert figure is not None
    (axis,) = figure.axes
    (points,) = (np.asarray(found.get_offsets()) for found in axis.collections)
    assert points.tolist() == [[0, -1], [1, 0], [2, 0.5], [3, 1], [4, 2]]  # not all above 28
    assert "28 steps" in axis.get_xlabel()


def test_every_line_has_a_style_of_its_own(runs: Path) -> None:
    assert len({repr(style) for _, style in (*STYLES.values(), *OTHERS, CHANCE)}) == len(STYLES) + len(OTHERS) + 1
    assert len(set(styles(["DS4D", "mine", "LSTM", "yours"]).values())) == 4
    figure = figures.learning_curves(collect([runs]))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["chance level", "LSTM", "DS4D"]


def test_a_model_that_is_labelled_by_its_name_is_that_model() -> None:
    """A preset has a label and a run of one's own has none, which is no difference between models."""
    runs = [tiny(), replace(tiny(seed=1), label="DS4D")]
    results = group([Record(run, {}, "", [{"step": 4, "accuracy": 0.5}], None, [], [], []) for run in runs])
    assert results.models == ["DS4D"]
    labels = [text.get_text() for text in figures.learning_curves(results).legends[0].get_texts()]
    assert labels == ["chance level", "DS4D"]


def test_runs_that_ended_early_keep_their_last_value_in_curves() -> None:
    solved = [{"step": 4, "accuracy": 0.9}, {"step": 8, "accuracy": 1.0}]
    failed = [*({"step": step, "accuracy": 0.1} for step in (4, 8, 12))]
    runs = [(tiny(), solved), (tiny(seed=1), solved), (tiny(seed=2), failed)]
    summary = {"seconds": 1.0}
    middle = []
    for end in (summary, None):
        records = [Record(run, {}, "", metrics, end, [], [], []) for run, metrics in runs]  # type: ignore[arg-type]
        (axis,) = figures.learning_curves(group(records)).axes
        middle.append([float(value) for value in np.asarray(axis.get_lines()[1].get_ydata())])
    assert middle == [[0.9, 1.0, 1.0], [0.9, 1.0, 0.1]]  # the second as if the solved ones were still going on


def test_variants_are_told_apart() -> None:
    longer = replace(tiny(steps=24), seed=1)
    other_task = replace(tiny(), task=replace(TASK, lags=(5, 8)))
    run_values = {tiny(): 0.1, tiny(seed=1): 0.2, longer: 0.5, other_task: 0.7}
    results = group([_record(run, [], value) for run, value in run_values.items()])
    assert list(results.tasks) == ["Copy, variable delay, lags 5", "Copy, variable delay, lags 6"]
    assert results.models == ["DS4D", "DS4D, steps 12", "DS4D, steps 24"]
    means = {key: cell.mean for key, cell in results.cells.items()}
    assert means == {
        ("Copy, variable delay, lags 6", "DS4D, steps 12"): pytest.approx(0.15),
        ("Copy, variable delay, lags 6", "DS4D, steps 24"): 0.5,
        ("Copy, variable delay, lags 5", "DS4D"): 0.7,
    }


def test_one_lucky_seed_does_not_beat_the_mean_of_three() -> None:
    three = {tiny(seed=seed): value for seed, value in enumerate((0.4, 0.5, 0.6))}
    runs = {**three, tiny(lr=2e-2): 0.7, tiny(lr=4e-2): 0.3}
    (cell,) = group([_record(run, [], value) for run, value in runs.items()]).cells.values()
    assert (cell.lr, cell.mean, len(cell.records)) == (1e-3, pytest.approx(0.5), 3)
    assert cell.learning_rates == (1e-3, 2e-2, 4e-2)
    runs |= {tiny(lr=2e-2, seed=seed): 0.7 for seed in (1, 2)}
    (cell,) = group([_record(run, [], value) for run, value in runs.items()]).cells.values()
    assert (cell.lr, cell.mean) == (2e-2, pytest.approx(0.7))


@pytest.mark.skipif(BROWSER is None and "CI" not in os.environ, reason="needs Chromium to show the page")
def test_a_browser_shows_the_page(runs: Path, tmp_path: Path) -> None:
    assert BROWSER is not None, "install Chromium"
    path = page.write([runs], tmp_path / "report")
    watched = path.with_name("watched.html")  # the same page, with a script that adds what the browser shows
    watched.write_text(path.read_text().replace("</body>", f"<script>{PROBE}</script></body>"))
    done = subprocess.run(
        [
            BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1200,900", "--virtual-time-budget=5000",
            "--enable-logging=stderr", "--dump-dom", watched.as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr
    probe = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout)
    assert probe is not None, done.stdout[-2000:]
    seen = json.loads(probe[1])
    assert seen["pictures"] == [True, True]
    assert seen["rows"] == 3
    assert seen["requests"] == 0  # everything is in the page
    assert seen["tooWide"] is False
    ascending, descending = seen["sorted"]
    assert len(set(ascending)) > 1
    assert ascending == sorted(ascending)
    assert descending == sorted(ascending, reverse=True)


PROBE = """
addEventListener("load", () => {
  const runs = [...document.querySelectorAll("table.plain")].at(-1);
  const column = [...runs.tHead.rows[0].cells].findIndex(cell => cell.innerText.startsWith("best evaluation"));
  const sorted = () => {
    runs.tHead.rows[0].cells[column].querySelector("button").click();
    return [...runs.tBodies[0].rows].map(row => Number(row.cells[column].innerText));
  };
  const pre = document.createElement("pre");
  pre.id = "probe";
  pre.textContent = JSON.stringify({
    pictures: [...document.images].map(image => image.complete && image.naturalWidth > 300),
    rows: document.querySelectorAll("#accuracy tbody tr").length,
    requests: performance.getEntriesByType("resource").filter(entry => !entry.name.startsWith("data:")).length,
    sorted: [sorted(), sorted()],
    tooWide: document.documentElement.scrollWidth > innerWidth,
  });
  document.body.append(pre);
});
"""
