"""Byte-level language models of film reviews: at equal bytes, at equal time, by position, and without their delays."""

from __future__ import annotations

import lzma
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import nn

from delayssm.models.token import TokenModel
from delayssm_lab.models.specs import StateSpaceSpec
from delayssm_lab.recipes.language import LANGUAGE_MODELS, reviews
from delayssm_lab.report import figures, tables
from delayssm_lab.report.collect import group
from delayssm_lab.report.drawing import legend, panels, png, styles
from delayssm_lab.studies.contest import Contest, Contests, hold
from delayssm_lab.studies.mechanism import with_empty_branch, with_shortest_delays, without_branch
from delayssm_lab.studies.trained import Finder, Shelf, of_this_code
from delayssm_lab.study import File, Places
from delayssm_lab.tasks.language import START, FilmReviews, TextBatch
from delayssm_lab.tasks.task import Split
from delayssm_lab.training.evaluate import batches
from delayssm_lab.training.record import Record
from delayssm_lab.training.run import Run, to_json

#: Learning rates that are tried if the best one so far is the lowest or the highest.
FURTHER = (5e-5, 1.6e-2, 6.4e-2)
#: Beginnings of the texts that the study lets DS4D write. The first one is nothing.
PROMPTS = "", "This film", "The acting was"
CARD = """---
library_name: delayssm
tags:
- text-generation
- state-space-model
- delayssm
---

# Film reviews, byte by byte

A `TokenModel` of DS4D layers with {parameters:,} parameters that predicts the next byte of film reviews. It was
trained on {megabytes:g} million bytes of the IMDB reviews (Maas et al., 2011), which it saw once, {context:,} bytes at
a time. On reviews that it has not seen it needs {bits:.3f} bits per byte. Its texts look like reviews and mean nothing.

Made by `delayssm reproduce language`, which leaves it in `runs/film-reviews`.

```python
from delayssm import TokenModel

model = TokenModel.from_pretrained("path/to/this/directory")
text = bytes(model.generate([0, *b"This film"], 500, temperature=0.8, stop=0)).decode(errors="replace")
```

A token is a byte. The byte 0 stands before each review.
"""
Bits = NDArray[np.float64]


def first_seed(run: Run) -> bool:
    """Return whether a run is the first of its kind."""
    return run.seed == 0


SCREENING = Shelf("language-screening")
LANGUAGE = Shelf("language", first_seed)


def language_contests() -> tuple[Contest, ...]:
    """Return a contest for each model."""
    return tuple(
        Contest(reviews(model), further=FURTHER, short_shelf=SCREENING, whole_shelf=LANGUAGE)
        for model in LANGUAGE_MODELS
    )


@dataclass(frozen=True)
class Language(Contests):
    """Bits per byte of all models, and what the delays of DS4D do.

    Args:
        contests: A contest for each model.
        samples: Windows of the test text by which positions and ablations are measured.
        written: Number of bytes of each text that DS4D writes.
    """

    name = "language"
    title = "Byte-level language models of film reviews, about 400,000 parameters"

    contests: tuple[Contest, ...] = field(default_factory=language_contests)
    samples: int = 512
    written: int = 600

    def run(self, places: Places) -> None:
        hold(self.contests, places)  # all at once, as there are few runs for many cores
        for record, model in self._models(places):
            if isinstance(model, TokenModel) and record.delays:
                assert record.summary is not None
                task = record.run.task
                assert isinstance(task, FilmReviews)
                card = CARD.format(
                    parameters=record.run.parameters(),
                    megabytes=task.train_bytes / 1e6,
                    context=task.context,
                    bits=record.summary[f"test_{task.metric.value}"],
                )
                model.save_pretrained(places.work / "film-reviews", card=card, about={"run": to_json(record.run)})

    def files(self, places: Places) -> Iterable[File]:
        find = of_this_code(places)
        yield "rates.md", self.rates(find).encode()
        yield "table.md", self._table(find).encode()
        finals = self.records(find)
        if not finals:
            return
        yield "curves.png", png(_curves(finals))
        models = self._models(places)
        versions = {name: version for record, model in models for name, version in _versions(record, model)}
        measured = {name: self._bits(version) for name, version in versions.items()}
        yield "ablations.md", _ablations(measured).encode()
        yield "positions.md", _by_position(measured).encode()
        yield (
            "positions.png",
            png(_positions_figure({r.run.model_label: measured[r.run.model_label] for r, _ in models})),
        )
        if (figure := figures.learned_delays(group(finals))) is not None:
            yield "delays.png", png(figure)
        for record, model in models:
            if isinstance(model, TokenModel) and record.delays:
                yield "texts.md", self._texts(model).encode()

    @property
    def _task(self) -> FilmReviews:
        task = self.contests[0].run.task
        assert isinstance(task, FilmReviews)
        return task

    def _models(self, places: Places) -> list[tuple[Record, nn.Module]]:
        """Return the first seed of each model with its best weights, as far as they are finished."""
        find = of_this_code(places)
        pairs = [(contest.whole_shelf, run) for contest in self.contests for run in contest.finals(find)[:1]]
        found = [(shelf, find(shelf, run)) for shelf, run in pairs]
        return [(record, shelf.store(places).model(record.run)) for shelf, record in found if record is not None]

    def _bits(self, model: nn.Module) -> Bits:
        """Return -log2 of the probability of each byte of the first test windows, (windows, context)."""
        count = min(self.samples, self._task.size(Split.TEST))
        rows = []
        for batch in batches(self._task, 0, Split.TEST, range(count), rows_at_once=8):
            assert isinstance(batch, TextBatch)
            rows.append(batch.bits(model).double().numpy())
        return np.concatenate(rows)

    def _table(self, find: Finder) -> str:
        """Return the results of all models, and of what has no parameters."""
        finals = [contest.records(find) for contest in self.contests]
        shortest = min((_mean(map(_cpu_seconds, records)) for records in finals if records), default=math.nan)
        head = [
            "model",
            "parameters",
            "learning rate",
            "seeds",
            "test",
            "validation",
            "processor minutes",
            *([] if math.isnan(shortest) else [f"validation after {shortest / 60:.1f} processor minutes"]),
            "validation, a quarter of the bytes",
            "processor minutes of that",
        ]
        rows = []
        for contest, records in zip(self.contests, finals, strict=True):
            short = contest.screened(find)
            if not short:
                continue
            best = min(short, key=lambda record: record.best)
            row = [contest.run.model_label, f"{contest.run.parameters():,}"]
            if records:
                name = f"test_{self._task.metric.value}"
                tests = [record.summary[name] for record in records if record.summary is not None]
                row += [f"{records[0].run.training.lr:g}", str(len(records)), _spread(tests)]
                row += [_spread([record.best for record in records])]
                row += [f"{_mean(map(_cpu_seconds, records)) / 60:.1f}"]
                row += [_spread([_at(record, shortest) for record in records])]
            else:
                row += [f"{best.run.training.lr:g}", *["–"] * (len(head) - 5)]
            rows.append([*row, f"{best.best:.3f}", f"{_cpu_seconds(best) / 60:.1f}"])
        for label, bits in self._without_parameters():
            rows.append([label, "0", "–", "–", f"{bits:.3f}", *["–"] * (len(head) - 5)])
        return tables.markdown(head, rows)

    def _without_parameters(self) -> Iterable[tuple[str, float]]:
        """Yield the entropy of single bytes of the test text, and what a compressor makes of the same windows."""
        task = self._task
        held_out = task.text(Split.TEST)[: self.samples * task.context + 1].tobytes()
        yield "entropy of single bytes", task.chance_level()
        yield "lzma, after all training text", compressed_bits(task.text(Split.TRAIN).tobytes(), held_out)

    def _texts(self, model: TokenModel) -> str:
        """Return what a model writes after a few beginnings."""
        texts = []
        for seed, prompt in enumerate(PROMPTS):
            tokens = model.generate([START, *prompt.encode()], self.written, temperature=0.8, seed=seed, stop=START)
            text = prompt + bytes(tokens).decode(errors="replace").replace("<br />", "\n").replace("```", "'''")
            texts.append(f"```text\n{text}\n```\n")
        return "\n".join(texts)


def compressed_bits(before: bytes, text: bytes) -> float:
    """Return the bits per byte that lzma needs for a text after another one, all of which it can refer back to."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": max(1 << 16, len(before) + len(text))}]
    sizes = [len(lzma.compress(content, lzma.FORMAT_RAW, filters=filters)) for content in (before, before + text)]
    return 8 * (sizes[1] - sizes[0]) / len(text)


def ranges(context: int) -> list[tuple[int, int]]:
    """Return ranges of the number of bytes before a target, from 1 to the context, each twice as wide as the last."""
    starts = [2**power for power in range(context.bit_length()) if 2**power < context] or [1]
    return list(zip(starts, [*(start - 1 for start in starts[1:]), context], strict=True))


def _versions(record: Record, model: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    """Yield a model and, if it has delays, its ablations, each with its name."""
    label = record.run.model_label
    yield label, model
    if record.delays and isinstance(record.run.model, StateSpaceSpec):
        yield f"{label}, τ = 1 step", with_shortest_delays(model)
        yield f"{label}, μ = 0", without_branch(model)
        yield f"{label}, p = 0", with_empty_branch(model)


def _ablations(measured: dict[str, Bits]) -> str:
    """Return the bits of all models and ablations, and what an ablation costs, with its standard error over windows."""
    rows = []
    for name, bits in measured.items():
        whole = measured[name.partition(",")[0]]
        change = (bits - whole).mean(1)
        cost = "" if bits is whole else f"{change.mean():+.3f} ± {change.std() / math.sqrt(len(change)):.3f}"
        rows.append([name, f"{bits.mean():.3f}", cost])
    return tables.markdown(["model", "test bits per byte", "change"], rows)


def _by_position(measured: dict[str, Bits]) -> str:
    """Return the bits by the number of bytes before the target, a column for each model and ablation."""
    rows = []
    for first, last in ranges(next(iter(measured.values())).shape[1]):
        cells = [f"{bits[:, first - 1 : last].mean():.3f}" for bits in measured.values()]
        rows.append([f"{first:,}" if first == last else f"{first:,} to {last:,}", *cells])
    return tables.markdown(["bytes before the target", *measured], rows)


def _positions_figure(measured: dict[str, Bits]) -> Figure:
    figure, (axis,) = panels(1, width=6, height=3.6)
    for label, style in styles(list(measured)).items():
        bits = measured[label]
        pieces = ranges(bits.shape[1])
        middles = [math.sqrt(first * last) for first, last in pieces]
        values = [bits[:, first - 1 : last].mean() for first, last in pieces]
        axis.plot(middles, values, color=style[0], linestyle=style[1], label=label)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("bytes of the window before the target")
    axis.set_ylabel("test bits per byte")
    axis.grid(alpha=0.25, linewidth=0.5)
    legend(figure, [axis])
    return figure


def _curves(records: Sequence[Record]) -> Figure:
    """Return the validation curves of all runs, by the bytes seen and by the processor time of training."""
    figure, axes = panels(2, width=5, height=3.6)
    style_of = styles(list(dict.fromkeys(record.run.model_label for record in records)))
    for record in records:
        run, (color, line) = record.run, style_of[record.run.model_label]
        steps, bits = np.array(record.curve()).T
        seen = steps * run.training.batch_size * run.task.max_length / 1e6
        minutes = np.array([entry["cpu_seconds"] for entry in record.metrics]) / 60
        for axis, x in zip(axes, (seen, minutes), strict=True):
            axis.plot(x, bits, color=color, linestyle=line, linewidth=1.4, alpha=0.8, label=run.model_label)
    axes[0].set_xlabel("million bytes seen")
    axes[1].set_xlabel("processor minutes of training")
    axes[1].set_xscale("log")
    axes[1].xaxis.set_major_formatter("{x:g}")
    axes[0].set_ylabel("validation bits per byte")
    for axis in axes:
        axis.grid(alpha=0.25, linewidth=0.5)
    legend(figure, axes)
    return figure


def _cpu_seconds(record: Record) -> float:
    return record.metrics[-1]["cpu_seconds"]


def _at(record: Record, seconds: float) -> float:
    """Return the validation metric of a run after some processor time, between evaluations on a straight line."""
    times = [entry["cpu_seconds"] for entry in record.metrics]
    return float(np.interp(seconds, times, [value for _, value in record.curve()]))


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def _spread(values: Sequence[float]) -> str:
    """Return mean ± standard deviation, if there are several values."""
    deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{_mean(values):.3f}{deviation}"
