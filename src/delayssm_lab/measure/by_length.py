"""Figures whose panels all have the sequence length on their horizontal axis."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from delayssm_lab.report.drawing import legend, panels, png

#: Colours of the models, the same in all figures.
COLORS = {"S4D, H 256": "#D55E00", "DS4D, H 256": "#0072B2", "DS4D, H 241": "#009E73"}
OTHER = "#777777"


@dataclass(frozen=True)
class Line:
    """A line of a panel."""

    label: str
    values: Mapping[int, float]
    color: str = OTHER
    style: str = "-"
    marker: str = "o"


def figure(content: Mapping[str, Sequence[Line]], logarithmic: Collection[str] = ()) -> bytes:
    """Draw one panel for each title; panels that are not `logarithmic` start at 0."""
    drawing, axes = panels(len(content), width=3.5, height=2.8)
    for axis, (title, lines) in zip(axes, content.items(), strict=True):
        for line in lines:
            axis.plot(
                list(line.values),
                list(line.values.values()),
                color=line.color,
                linestyle=line.style,
                marker=line.marker,
                markersize=5,
                label=line.label,
            )
        lengths = sorted({length for line in lines for length in line.values})
        axis.set_title(title)
        axis.set_xscale("log", base=2)
        axis.set_xticks(lengths, [str(length) for length in lengths])
        axis.minorticks_off()
        axis.set_xlabel("sequence length")
        axis.grid(alpha=0.25, linewidth=0.5)
        if title in logarithmic:
            axis.set_yscale("log")
        else:
            axis.set_ylim(0, 1.1 * max((value for line in lines for value in line.values.values()), default=1))
    legend(drawing, axes)
    return png(drawing)
