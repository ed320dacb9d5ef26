"""Axes that read well: curves labelled at their ends, plain numbers on logarithmic axes, intervals.

What depends on an axis's limits is done by `settle`, when a figure is complete: a panel that shares
its axis with one that is drawn later has no final limits before.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis, YAxis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FuncFormatter,
    LogFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
    SymmetricalLogLocator,
)
from scipy.optimize import isotonic_regression

from steinis_lib.companion.intervals import Estimate

_TO_LABEL: WeakSet[Axes] = WeakSet()

_MINUS = "\N{MINUS SIGN}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def label_ends(axes: Axes) -> None:
    """Write each labelled curve's label at its right end, in its colour, when the figure is shown.

    Labels stand at the height of their curves' ends, as far as they do not overlap; a thin line
    leads to those that had to move.
    """
    _TO_LABEL.add(axes)


def mark(
    axes: Axes,
    estimate: Estimate,
    y: float,
    colour: Any,
    series: str,
    marker: str = "o",
    **more: Any,
) -> None:
    """Draw an estimate with its interval at a height; `series` is its label in legend and data."""
    ends = [[estimate.value - estimate.low], [estimate.high - estimate.value]]
    style: dict[str, Any] = {"color": colour, "marker": marker, "ms": 7, "ls": "none"}
    axes.errorbar(estimate.value, y, xerr=ends, label=series, **style | more)


def settle(figure: Figure) -> None:
    """Write plain numbers on logarithmic axes and labels at curves' ends: limits are final now."""
    axises = [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]
    logarithmic = [axis for axis in axises if isinstance(axis.get_major_formatter(), LogFormatter)]
    asked = [axes for axes in figure.axes if axes in _TO_LABEL]
    if asked:
        figure.draw_without_rendering()  # limits, and the places of all panels
    for axes in asked:
        _TO_LABEL.discard(axes)
        _write_labels(axes)
    if logarithmic:
        figure.draw_without_rendering()  # the labels have taken some of the panels' space
    for axis in logarithmic:
        _write_plainly(axis)


def plain_number(value: float) -> str:
    """Return a number of an axis: "0.01", "10,000", and powers of ten beyond these."""
    if value == 0:
        return "0"
    sign, size = _MINUS if value < 0 else "", float(f"{abs(value):.6g}")
    if 1e-4 <= size < 1e6:
        return f"{sign}{size:,.0f}" if size >= 1000 else f"{sign}{size:g}"
    exponent = int(np.floor(np.log10(size) + 1e-9))
    lead = float(f"{size / 10.0**exponent:.3g}")
    factor = "" if lead == 1 else f"{lead:g}·"
    return f"{sign}{factor}10{str(exponent).translate(_SUPERSCRIPTS)}"


def _write_plainly(axis: Axis) -> None:
    """Put plain numbers on a logarithmic axis, as many for each decade as there is space for."""
    locator = axis.get_major_locator()
    if isinstance(locator, LogLocator) and min(axis.get_view_interval()) > 0:
        for subs in ((1, 2, 5), (1, 3), (1,)):
            axis.set_major_locator(LogLocator(subs=subs))
            if _fits(axis):
                break
    if not isinstance(locator, LogLocator | SymmetricalLogLocator):  # ticks that somebody chose
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))
    axis.set_minor_formatter(NullFormatter())


def _fits(axis: Axis) -> bool:
    """Whether the numbers at an axis's ticks have space beside each other, or below."""
    low, high = sorted(axis.get_view_interval())
    numbers = [plain_number(value) for value in axis.get_majorticklocs() if low <= value <= high]
    size, box = mpl.rcParams["font.size"] * axis.axes.figure.dpi / 72, axis.axes.get_window_extent()
    if isinstance(axis, YAxis):
        return 2.2 * size * len(numbers) <= box.height
    return sum(0.65 * size * (len(number) + 1.5) for number in numbers) <= box.width


def _write_labels(axes: Axes) -> None:
    """Write the labels, heights being fractions of the axes' height."""
    lines = [line for line in axes.get_lines() if _labelled(line)]
    ends = np.array([_end(axes, line) for line in lines]).reshape(-1, 2)
    size = mpl.rcParams["font.size"] * axes.figure.dpi / 72
    gap = 1.12 * size / axes.get_window_extent().height
    for line, (x, y), height in zip(lines, ends, _apart(ends[:, 1], gap), strict=True):
        colour = line.get_color()
        if abs(height - y) > 0.3 * gap:
            way = Line2D([x + 0.008, x + 0.03], [y, height], color=colour, linewidth=0.8)
            way.set(transform=axes.transAxes, clip_on=False)
            axes.add_artist(way)
        axes.annotate(
            str(line.get_label()), (x + 0.035, height), xycoords="axes fraction",
            color=colour, va="center", annotation_clip=False,
        )  # fmt: skip


def _labelled(line: Line2D) -> bool:
    """Whether a curve has a label, and a point to put it at."""
    points = np.asarray(line.get_xydata(), dtype=float)
    return not str(line.get_label()).startswith("_") and bool(np.isfinite(points).all(1).any())


def _end(axes: Axes, line: Line2D) -> Any:
    """The last point of a curve that can be drawn, as fractions of the axes."""
    points = axes.transData.transform(np.asarray(line.get_xydata(), dtype=float))
    points = points[np.isfinite(points).all(1)]
    return axes.transAxes.inverted().transform(points[-1]).clip(0, 1)


def _apart(heights: Any, gap: float) -> Any:
    """The nearest heights between 0 and 1, in the same order, none closer to another than `gap`."""
    if not len(heights):
        return heights
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(order))
    found = isotonic_regression(np.asarray(heights)[order] - steps).x
    moved = np.empty(len(order))
    moved[order] = found.clip(0, max(0.0, 1 - steps[-1])) + steps
    return moved
