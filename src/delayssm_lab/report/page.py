"""The report of runs: an HTML page with a table, learning curves, delays and sample answers."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from delayssm.storage import files
from delayssm_lab.report import figures, tables
from delayssm_lab.report.collect import Cell, Results, collect
from delayssm_lab.report.drawing import png
from delayssm_lab.tasks import kinds
from delayssm_lab.tasks.associative import AssociativeRecall
from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.tasks.language import FilmReviews
from delayssm_lab.tasks.recall import RecallTask
from delayssm_lab.tasks.selective import SelectiveCopying
from delayssm_lab.tasks.task import Split, Task

_CHANNELS = "Each point is a channel: its initial delay, and its change up to the best checkpoint."
_DELAYS = f"{_CHANNELS} The grey bar of a delayed-memory task is the distance from a data token to its answer."


@dataclass(frozen=True)
class Picture:
    """A figure of the page."""

    name: str
    title: str
    caption: str
    png: bytes

    @property
    def data_url(self) -> str:
        """Content of the PNG file as a URL."""
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


@dataclass(frozen=True)
class Example:
    """A validation sample, and each model's answers to it.

    Args:
        title: Label of the task, with the lag of the sample where there is one.
        data: Tokens to remember, one for each answer; empty if a task has none.
        target: Correct answers.
        answers: Answers by the label of the model.
    """

    title: str
    data: list[int]
    target: list[int]
    answers: dict[str, list[int]]


def write(paths: Sequence[Path], out: Path) -> Path:
    """Write the report of all runs in the paths to the directory `out`, and return the path of its page."""
    return write_results(collect(paths), out)


def write_results(results: Results, out: Path) -> Path:
    """Write the report of some results to the directory `out`, and return the path of its page."""
    content = contents(results)
    files.make_directory(out)
    for name, data in content.items():
        files.write(out / name, data)
    return out / "index.html"


def contents(results: Results) -> dict[str, bytes]:
    """Return the files of the report by name: index.html, figures, the table as Markdown and JSON."""
    pictures = list(_pictures(results))
    return {
        **{f"{picture.name}.png": picture.png for picture in pictures},
        "accuracy.md": to_markdown(results).encode(),
        "accuracy.json": json.dumps(_cells_as_json(results), indent=2).encode(),
        "index.html": _page(results, pictures, _examples(results)).encode(),
    }


def to_markdown(results: Results) -> str:
    """Return the table of best validation metrics, with the best of each column in bold and the second in italics."""
    rows = []
    for model in results.models:
        row = [model]
        for task in results.tasks:
            text = cell_text(results.cells.get((task, model)))
            if model in results.ranked(task, 0):
                text = f"**{text}**"
            elif model in results.ranked(task, 1):
                text = f"_{text}_"
            row.append(text)
        rows.append(row)
    return tables.markdown(["model", *results.tasks], rows)


def cell_text(cell: Cell | None) -> str:
    """Return mean ± standard deviation over seeds, with a star if runs are unfinished; a dash if there are none."""
    if cell is None:
        return "–"
    deviation = "" if cell.std is None else f" ± {cell.std:.2f}"
    return f"{cell.mean:.2f}{deviation}{'' if cell.finished else '*'}"


def text_or_blank(cell: Cell | None) -> str:
    """Return the text of a cell for tables whose missing cells are blank."""
    return "" if cell is None else cell_text(cell)


def _cells_as_json(results: Results) -> list[dict[str, object]]:
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


def _pictures(results: Results) -> Iterable[Picture]:
    yield Picture(
        "curves",
        "Learning curves",
        "Accuracy or error on validation samples during training, with the best learning rate of each model: the "
        "median over seeds, and the quartiles as a band where there are several seeds.",
        png(figures.learning_curves(results)),
    )
    if (figure := figures.learned_delays(results)) is not None:
        yield Picture(
            "delays",
            "Learned delays",
            _DELAYS if any(isinstance(task, DelayedMemory) for task in results.tasks.values()) else _CHANNELS,
            png(figure),
        )


def _examples(results: Results) -> list[Example]:
    """Return the first validation sample of each task whose answers are tokens, with those of all models."""
    examples = []
    for label, task in results.tasks.items():
        if not isinstance(task, RecallTask):
            continue
        cells = {model: results.cells[label, model] for model in results.models if (label, model) in results.cells}
        seed = next(iter(cells.values())).records[0].run.seed
        batch = task.batch(seed, Split.VALIDATION, [0])
        answers = {model: cell.records[0].answers for model, cell in cells.items() if cell.records[0].run.seed == seed}
        title, data = label, []
        if isinstance(task, DelayedMemory):
            title = f"{label}, lag {task.lag(seed, Split.VALIDATION, 0)}"
            data = batch.tokens[0, : task.data_length].tolist()
        examples.append(Example(title, data, batch.targets[0].tolist(), answers))
    return examples


def _page(results: Results, pictures: list[Picture], examples: list[Example]) -> str:
    loader = PackageLoader("delayssm_lab.report", "")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template("template.html").render(
        title=_title(results),
        results=results,
        pictures=pictures,
        examples=examples,
        cell_text=cell_text,
        metrics=sorted({task.metric.label for task in results.tasks.values()}),
        chance_level={label: task.chance_level() for label, task in results.tasks.items()},
    )


def _title(results: Results) -> str:
    """Return the title of the page: the kinds of tasks that it is about."""
    return " and ".join(dict.fromkeys(_kind(task) for task in results.tasks.values())).capitalize()


def _kind(task: Task) -> str:
    if isinstance(task, DelayedMemory):
        return "delayed memory"
    if isinstance(task, AssociativeRecall | SelectiveCopying):
        return "recall"
    if isinstance(task, FilmReviews):
        return "language"
    return task.label if type(task) in kinds.own().values() else "general benchmarks"
