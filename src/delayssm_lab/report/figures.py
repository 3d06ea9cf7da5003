"""Figures of runs: learning curves, learned delays, and predictions on a stream of audio."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from delayssm_lab.report.collect import Cell, Results
from delayssm_lab.report.drawing import CHANCE, legend, panels, styles
from delayssm_lab.tasks.delayed import DelayedMemory
from delayssm_lab.tasks.signals import SpeechCommands
from delayssm_lab.tasks.task import Metric

#: Colour and marker of each layer.
_LAYERS = [("#0072B2", "o"), ("#E69F00", "s"), ("#009E73", "^"), ("#CC79A7", "D")]


def learning_curves(results: Results) -> Figure:
    """Return a figure of the validation metric during training: the median over seeds, with the quartiles as a band."""
    figure, axes = panels(len(results.tasks), width=3.4, height=2.6)
    style_of = styles(results.models)
    for axis, (label, task) in zip(axes, results.tasks.items(), strict=True):
        color, style = CHANCE
        axis.axhline(task.chance_level(), color=color, linewidth=0.8, linestyle=style, label="chance level")
        for model in results.models:
            cell = results.cells.get((label, model))
            if cell is not None:
                color, style = style_of[model]
                steps, values = _trajectories(cell)
                low, middle, high = np.nanquantile(values, (0.25, 0.5, 0.75), axis=0)
                axis.plot(steps, middle, color=color, linestyle=style, linewidth=1.8, label=model)
                axis.fill_between(steps, low, high, color=color, alpha=0.2, linewidth=0)
        axis.set_title(label)
        if task.metric is Metric.ACCURACY:
            axis.set_ylim(-0.03, 1.03)
        else:
            axis.set_yscale("log")
            for set_formatter in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
                set_formatter(lambda x, _: f"{x:g}" if f"{x:e}"[0] in "1235" else "")  # others would touch these
        axis.set_xlim(left=0)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.set_xlabel("training step")
        axis.set_ylabel(f"validation {task.metric.label}")
    legend(figure, axes)
    return figure


def learned_delays(results: Results) -> Figure | None:
    """Return a figure of each channel's initial delay and its change up to the best checkpoint, from the first seed.

    If all delays of a model begin with the same value, its channels are beside each other in the order of their change.
    None if there are no models with delays.
    """
    cells = [
        (task, model, results.cells[task, model])
        for task in results.tasks
        for model in results.models
        if (task, model) in results.cells and results.cells[task, model].records[0].delays
    ]
    if not cells:
        return None
    figure, axes = panels(len(cells), width=3.4, height=2.4)
    for axis, (task, model, cell) in zip(axes, cells, strict=True):
        record = cell.records[0]
        run = record.run
        initial = {delay for before, _ in record.delays for delay in before}
        for layer, (before, after) in enumerate(record.delays):
            color, marker = _LAYERS[layer % len(_LAYERS)]
            change = np.subtract(after, before)
            x, change = (before, change) if len(initial) > 1 else (np.arange(len(change)), np.sort(change))
            axis.scatter(x, change, s=14, marker=marker, color=color, alpha=0.7, label=f"layer {layer + 1}")
        if isinstance(run.task, DelayedMemory) and len(initial) > 1:
            shortest, longest = (lag + run.task.data_length for lag in run.task.lags)  # from a token to its answer
            margin = run.task.max_length / 100  # a fixed lag would be an invisible line
            axis.axvspan(shortest - margin, longest + margin, color="black", alpha=0.15, linewidth=0)
        axis.axhline(0, color="#999999", linewidth=0.8)
        axis.set_title(task if model == "DS4D" else f"{task}, {model}")
        axis.set_xlabel("initial delay (steps)" if len(initial) > 1 else f"channel, all from {min(initial):g} steps")
        axis.set_ylabel("change in training (steps)")
    legend(figure, axes)
    return figure


def running_predictions(
    samples: NDArray[np.int16], probabilities: NDArray[np.float32], words: tuple[str, ...]
) -> Figure:
    """Return a figure of a waveform and, below it, the probability of each word after each step, (steps, words)."""
    figure, (wave_axis, word_axis) = panels(2, width=9, height=2.6, columns=1)
    seconds = len(samples) / SpeechCommands.rate
    wave_axis.plot(np.arange(len(samples)) / SpeechCommands.rate, samples / 2**15, color="#555555", linewidth=0.5)
    wave_axis.set_ylabel("waveform")
    wave_axis.set_xlim(0, seconds)
    image = word_axis.imshow(
        probabilities.T,
        "Blues",
        vmin=0,
        vmax=1,
        aspect="auto",
        extent=(0, seconds, len(words) - 0.5, -0.5),
        interpolation="nearest",
    )
    final = int(probabilities[-1].argmax())
    word_axis.set_yticks(range(len(words)), words, fontsize=9 if len(words) <= 12 else 4)
    word_axis.get_yticklabels()[final].set_fontweight("bold")
    word_axis.set_title(f"final prediction: {words[final]}, {probabilities[-1, final]:.2f}", loc="right", fontsize=10)
    word_axis.set_xlabel("time (s)")
    figure.colorbar(image, ax=word_axis, label="probability")
    return figure


def forecasts(true: NDArray[np.float64], predicted: NDArray[np.float64], ahead: int) -> Figure:
    """Return a figure of a series, (times,), and of what was forecast for each time so many steps before it."""
    figure, (axis,) = panels(1, width=9, height=3, columns=1)
    axis.set_ylabel("value")
    axis.plot(true, color="#555555", linewidth=1.5, label="actual")
    axis.plot(predicted, color="#c0392b", linewidth=1.2, linestyle="--", label=f"forecast {ahead} steps ahead")
    axis.set_xlabel("time (steps)")
    axis.set_xlim(0, len(true) - 1)
    legend(figure, [axis])
    return figure


def _trajectories(cell: Cell) -> tuple[list[int], NDArray[np.float64]]:
    """Return the steps of all evaluations, and the metric (seeds, steps) there.

    A run that has ended early, because its task was solved, keeps its last value. One that is still going on, or was
    not evaluated at a step, has NaN there.
    """
    curves = [dict(record.curve()) for record in cell.records]
    steps = sorted({step for curve in curves for step in curve})
    values = np.full((len(curves), len(steps)), np.nan)
    for row, record, curve in zip(values, cell.records, curves, strict=True):
        last = max(curve)
        after = curve[last] if record.finished else np.nan
        row[:] = [after if step > last else curve.get(step, np.nan) for step in steps]
    return steps, values
