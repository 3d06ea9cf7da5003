"""The page: an accuracy table, curves, delays, and what the models answered."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from delayssm.storage import files
from delayssm_lab.report import figures, tables
from delayssm_lab.report.collect import Cell, Record, Results, collect
from delayssm_lab.report.drawing import png
from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.tasks.task import Split
from delayssm_lab.training.evaluate import load_model
from delayssm_lab.training.run import to_json


@dataclass(frozen=True)
class Picture:
    """A figure for the page."""

    name: str
    title: str
    caption: str
    png: bytes

    @property
    def data(self) -> str:
        """The picture itself, as an address."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Answers:
    """One validation sample of a task, and what each model said."""

    task: str
    lag: int
    source: list[int]
    target: list[int]
    said: dict[str, list[int]]


def write(paths: Sequence[Path], out: Path) -> Path:
    """Write the page and what it is made of into `out`, and give its path."""
    content = contents(collect(paths))
    out.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        files.write(out / name, data)
    return out / "index.html"


def contents(results: Results) -> dict[str, bytes]:
    """Files by name: index.html, its pictures, the table as Markdown and JSON, and runs.json.

    That has the settings, environment and evaluations of every run, whether or not its learning rate was the best.
    """
    pictures = list(_pictures(results))
    return {
        **{f"{picture.name}.png": picture.png for picture in pictures},
        "accuracy.md": markdown(results).encode(),
        "accuracy.json": json.dumps(_values(results), indent=2).encode(),
        "runs.json": facts(results),
        "index.html": _page(results, pictures, _answers(results)).encode(),
    }


def markdown(results: Results) -> str:
    """The accuracy table."""
    rows = []
    for model in results.models:
        row = [model]
        for task in results.tasks:
            text = words(results.cells.get((task, model)))
            if model in results.ranked(task, 0):
                text = f"**{text}**"
            elif model in results.ranked(task, 1):
                text = f"_{text}_"
            row.append(text)
        rows.append(row)
    return tables.markdown(["model", *results.tasks], rows)


def words(cell: Cell | None) -> str:
    """mean ± std over seeds; a star where runs are not finished."""
    if cell is None:
        return "–"
    spread = "" if cell.std is None else f" ± {cell.std:.2f}"
    return f"{cell.mean:.2f}{spread}{'' if cell.finished else '*'}"


def _values(results: Results) -> list[dict[str, object]]:
    return [
        {
            "task": task,
            "model": model,
            results.tasks[task].metric.value: cell.mean,
            "std": cell.std,
            "lr": cell.lr,
            "seeds": [record.run.seed for record in cell.records],
            "parameters": cell.records[0].run.parameters(),
            "finished": cell.finished,
        }
        for (task, model), cell in results.cells.items()
    ]


def facts(results: Results) -> bytes:
    """All of the runs but their weights, for runs.json."""
    return json.dumps([_facts(record) for record in results.records], indent=1).encode()


def _facts(record: Record) -> dict[str, object]:
    return {
        "name": record.run.name,
        "run": to_json(record.run),
        "environment": record.environment,
        "finished": record.finished,
        "summary": record.summary,
        "metrics": record.metrics,
    }


def _pictures(results: Results) -> Iterable[Picture]:
    yield Picture(
        "curves",
        "Learning curves",
        "Accuracy or error on validation samples while training, with the best learning rate of each model: the "
        "median over seeds, and the quartiles as a band where there are several. Dotted: the best guess that ignores "
        "the data.",
        png(figures.curves(results)),
    )
    if (figure := figures.delays(results)) is not None:
        yield Picture(
            "delays",
            "Learned delays",
            "Each point is a channel: where its delay began, and how far training has moved it. The grey bar is the "
            "distance from a data token to the position that answers for it.",
            png(figure),
        )


def _answers(results: Results) -> list[Answers]:
    found = []
    for label, task in results.tasks.items():
        if not isinstance(task, DelayedMemory):
            continue
        cells = {model: results.cells[label, model] for model in results.models if (label, model) in results.cells}
        seed = next(iter(cells.values())).records[0].run.seed
        batch = task.batch(seed, Split.VALIDATION, [0])
        said = {
            model: task.answers(load_model(cell.records[0].directory)[0], batch)[0].tolist()
            for model, cell in cells.items()
        }
        source = batch.tokens[0, : task.data_length].tolist()
        lag = int(batch.positions[0, 0]) - task.data_length
        found.append(Answers(label, lag, source, batch.targets[0].tolist(), said))
    return found


def _page(results: Results, pictures: list[Picture], samples: list[Answers]) -> str:
    loader = PackageLoader("delayssm_lab.report", "")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("template.html").render(
        results=results,
        pictures=pictures,
        samples=samples,
        words=words,
        metrics=sorted({task.metric.value for task in results.tasks.values()}),
        chance={label: task.guess() for label, task in results.tasks.items()},
    )
