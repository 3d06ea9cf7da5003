"""Reports show the numbers of their runs, and a browser can show the page."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from delayssm_lab.display import Silent
from delayssm_lab.report import page
from delayssm_lab.report.collect import collect
from delayssm_lab.tasks.task import Split
from delayssm_lab.training import trainer as training
from tests.support.runs import LSTM, TASK, create, tiny

pytestmark = pytest.mark.usefixtures("one_thread")

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """Directory of runs: DS4D with two seeds, LSTM with two learning rates, and a run that has not started."""
    root = tmp_path_factory.mktemp("runs")
    for run in (tiny(), tiny(seed=1), tiny(LSTM), tiny(LSTM, lr=2e-2, steps=40)):
        training.train(create(root / run.name, run), Silent())
    create(root / "later", tiny(seed=2))
    return root


def _metrics(directory: Path) -> list[float]:
    return [json.loads(line)["accuracy"] for line in (directory / "metrics.jsonl").read_text().splitlines()]


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
    assert "<title>Delayed memory</title>" in html
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
    with pytest.raises(ValueError, match="has been evaluated yet"):
        collect([runs / "later"])


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


PROBE = """
addEventListener("load", () => {
  const pre = document.createElement("pre");
  pre.id = "probe";
  pre.textContent = JSON.stringify({
    pictures: [...document.images].map(image => image.complete && image.naturalWidth > 300),
    rows: document.querySelectorAll("#accuracy tbody tr").length,
    requests: performance.getEntriesByType("resource").filter(entry => !entry.name.startsWith("data:")).length,
    tooWide: document.documentElement.scrollWidth > innerWidth,
  });
  document.body.append(pre);
});
"""
