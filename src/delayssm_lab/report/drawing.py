"""Panels, legends, colours and line styles that all figures share.

The colours are distinct for colour-blind readers, the line styles in black and white.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Style = tuple[str, str | tuple[int, tuple[float, ...]]]

#: Colour and line style of each model.
STYLES: dict[str, Style] = {
    "DS4D": ("#0072B2", "-"),
    "DS4D narrow": ("#56B4E9", (0, (12, 1.5))),
    "S4D": ("#D55E00", "--"),
    "Mamba": ("#009E73", "-."),
    "LSTM": ("#000000", ":"),
    "GPT-2": ("#CC79A7", (0, (5, 1, 1, 1, 1, 1))),
    "Llama": ("#E69F00", (0, (7, 2))),
}
#: Colours and line styles of all other models, one after the other.
OTHERS: list[Style] = [
    ("#777777", (0, (3, 1))),
    ("#882255", (0, (3, 1, 1, 1))),
    ("#44AA99", (0, (9, 2, 2, 2))),
    ("#999933", (0, (2, 2))),
    ("#332288", (0, (6, 1, 2, 1, 2, 1))),
]
#: Colour and line style of the chance level, which is as thin as a line of the grid.
CHANCE: Style = ("#777777", (0, (20, 5)))


def styles(models: Sequence[str]) -> dict[str, Style]:
    """Return the colour and the line style of each model."""
    others = cycle(OTHERS)
    return {model: STYLES[model] if model in STYLES else next(others) for model in models}


def panels(count: int, width: float, height: float, columns: int = 3) -> tuple[Figure, list[Axes]]:
    """Return a figure of equal panels, row by row, and their axes; `width` and `height` of a panel are in inches.

    Pages are 7 to 8 inches wide, and show wider figures with smaller text, which is legible up to about 10 inches.
    """
    columns = min(count, columns)
    rows = -(-count // columns)
    figure = Figure(figsize=(width * columns, height * rows + 0.4), layout="constrained")
    axes = [figure.add_subplot(rows, columns, i + 1) for i in range(count)]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend(figure: Figure, axes: list[Axes]) -> None:
    """Add one legend for all panels below them, with as many labels in a row as fit."""
    lines = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    inches = 0.65 + 0.08 * max(map(len, lines), default=0)  # of the line of a label and its text, about
    columns = min(len(lines), max(1, int(figure.get_figwidth() / inches)))
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=columns, frameon=False)


def png(figure: Figure) -> bytes:
    """Return the figure as the content of a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=160)
    return buffer.getvalue()
