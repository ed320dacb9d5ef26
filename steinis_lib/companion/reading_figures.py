"""A claim's readings in one figure, in the manner of a specification curve.

Above, the interval of each reading, sorted by value, on bands for the ranges that decide verdicts;
below, a dot for each choice that the reading made.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from steinis_lib.companion import figures
from steinis_lib.companion.claims import Finding
from steinis_lib.companion.figure_axes import plain_number
from steinis_lib.companion.figures import COLOURS, Picture
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.reading_claims import Choice, Judged, Range, choice_text

_MARKERS: dict[str, dict[str, Any]] = {
    "reproduced": {"marker": "o", "fillstyle": "full", "color": COLOURS["green"]},
    "partly": {"marker": "D", "fillstyle": "left", "color": COLOURS["orange"]},
    "not reproduced": {"marker": "s", "fillstyle": "none", "color": COLOURS["red"]},
}
"""How a verdict looks: its shape and fill tell it without colour."""

Numbered = tuple[int, Judged]
Numbers = np.ndarray


def readings_figure(finding: Finding, number: str | None = None) -> Picture | None:
    """Return the figure of a claim's readings, or None if fewer than two have been run.

    Columns have the numbers of readings in the ledger, in which tables have them, too. `number` is
    the figure's own.
    """
    numbered = [(n, r) for n, r in enumerate(finding.readings, start=1) if r.estimate is not None]
    if len(numbered) < 2:
        return None
    numbered.sort(key=lambda pair: _estimate(pair[1]).value)
    rows = _rows([judged for judged in finding.readings if judged.estimate is not None])
    with mpl.rc_context():
        figures.use_style()
        figure = Figure(figsize=(7, 3.2 + 0.22 * len(rows)))
        heights = [2.6, 0.22 * len(rows) + 0.1] if rows else [1]
        grid = {"height_ratios": heights}
        upper, *lower = figure.subplots(
            len(heights), sharex=True, squeeze=False, gridspec_kw=grid
        ).flat
        _draw_intervals(upper, numbered, finding.claim.unit)
        if lower:
            _draw_choices(lower[0], numbered, rows)
        _label_columns(lower[0] if lower else upper, numbered)
        _mark_primary(upper, lower, numbered)
        figure.legend(
            handles=_legend(numbered), loc="outside upper left", ncols=5, fontsize="small"
        )
        caption = _caption(finding, numbered)
        return figures.show(figure, _alt(finding, numbered), number, caption, _table(numbered))


def _estimate(judged: Judged) -> Estimate:
    assert judged.estimate is not None
    return judged.estimate


def _ranges(judged: Judged) -> tuple[Range, Range]:
    assert judged.ranges is not None
    return judged.ranges


def _draw_intervals(axes: Axes, numbered: Sequence[Numbered], unit: str) -> None:
    """Draw each reading's interval on the bands of its ranges."""
    low, high = _limits([judged for _, judged in numbered], axes)
    axes.set(ylim=(low, high), ylabel=unit or "statistic")
    axes.grid(False, axis="x")
    column = 0
    for ranges, group in groupby(numbered, key=lambda pair: _ranges(pair[1])):
        width = len(list(group))
        edges = [column - 0.5, column + width - 0.5]
        for (a, b), alpha in zip(ranges, (0.22, 0.13), strict=True):
            a, b = np.clip([a, b], low, high)
            axes.fill_between(edges, a, b, color=COLOURS["grey"], alpha=alpha, linewidth=0)
        column += width
    for column, (_, judged) in enumerate(numbered):
        e, style = _estimate(judged), _MARKERS[judged.verdict]
        axes.vlines(column, *np.clip([e.low, e.high], low, high), color=style["color"])
        at = float(np.clip(e.value, low, high))
        axes.plot(column, at, markersize=7, linestyle="none", clip_on=False, **style)


def _limits(readings: Sequence[Judged], axes: Axes) -> tuple[float, float]:
    """The ends of the axis, which shows all finite numbers; it becomes logarithmic where they vary.

    That is where all are positive, and the largest is more than ten times the smallest.
    """
    estimates = [_estimate(judged) for judged in readings]
    ours = np.array([x for e in estimates for x in (e.value, e.low, e.high) if math.isfinite(x)])
    ends = np.array([x for j in readings for r in _ranges(j) for x in r if math.isfinite(x)])
    logarithmic = ours.size > 0 and ours.min() > 0 and ours.max() > 10 * ours.min()
    if not logarithmic:
        return _padded(np.concatenate((ours, ends)))
    axes.set_yscale("log")
    low, high = _padded(np.log10(np.concatenate((ours, ends[ends > 0]))))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high - low < 3 else (1,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: plain_number(y)))
    axes.yaxis.set_minor_locator(NullLocator())
    return 10**low, 10**high


def _padded(shown: Numbers) -> tuple[float, float]:
    """The smallest and the largest number, with some space beyond them."""
    shown = shown if shown.size else np.zeros(1)
    pad = 0.06 * np.ptp(shown) or 1.0
    return float(shown.min() - pad), float(shown.max() + pad)


def _rows(readings: Sequence[Judged]) -> list[tuple[str, Choice]]:
    """The choices in which readings differ, those of one axis together."""
    made = [_all_choices(judged) for judged in readings]
    rows = []
    for axis in dict.fromkeys(axis for choices in made for axis in choices):
        values = dict.fromkeys(choices[axis] for choices in made if axis in choices)
        if len(values) > 1 or any(axis not in choices for choices in made):
            rows += [(axis, value) for value in _in_order(list(values))]
    return rows


def _in_order(values: list[Choice]) -> list[Choice]:
    """Numbers rising; words as they come."""
    if any(isinstance(value, str) for value in values):
        return values
    return sorted(values, key=float)


def _all_choices(judged: Judged) -> dict[str, Choice]:
    """A reading's choices, and the experiment that it takes its result from if that is another."""
    other = {"result of": judged.reading.experiment} if judged.reading.experiment else {}
    return {**judged.choices, **other}


def _draw_choices(
    axes: Axes, numbered: Sequence[Numbered], rows: Sequence[tuple[str, Choice]]
) -> None:
    """Draw a dot for each choice that a reading made, and small ones for those that it did not."""
    for height, (axis, value) in enumerate(rows):
        for column, (_, judged) in enumerate(numbered):
            makes = _all_choices(judged).get(axis) == value
            style = {"color": COLOURS["blue"], "markersize": 6.5} if makes else _NOT_MADE
            axes.plot(column, height, "o", **style)
        if height and rows[height - 1][0] != axis:
            axes.axhline(height - 0.5, color=COLOURS["grey"], linewidth=0.6)
    axes.set_yticks(range(len(rows)), [choice_text(*row) for row in rows], fontsize="small")
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)


_NOT_MADE: dict[str, Any] = {"color": COLOURS["grey"], "markersize": 1.5}


def _mark_primary(upper: Axes, lower: Sequence[Axes], numbered: Sequence[Numbered]) -> None:
    """Draw a dotted line through the column of the primary reading, with a word above."""
    for column, (_, judged) in enumerate(numbered):
        if judged.reading.primary:
            for axes in (upper, *lower):
                axes.axvline(column, color=COLOURS["grey"], linestyle=":", linewidth=1, zorder=0)
            upper.annotate(
                "primary", (column, 1), xycoords=("data", "axes fraction"), xytext=(0, 3),
                textcoords="offset points", ha="center", fontsize="small",
            )  # fmt: skip


def _label_columns(axes: Axes, numbered: Sequence[Numbered]) -> None:
    """Number the columns as in the ledger."""
    axes.set_xticks(range(len(numbered)), [str(number) for number, _ in numbered])
    axes.set(xlim=(-0.5, len(numbered) - 0.5), xlabel="reading, by its number in the table")


def _legend(numbered: Sequence[Numbered]) -> list[Line2D | Patch]:
    """What the marks and bands mean, as far as they occur."""
    found = {judged.verdict for _, judged in numbered}
    marks: list[Line2D | Patch] = [
        Line2D([], [], linestyle="none", markersize=7, label=verdict, **style)
        for verdict, style in _MARKERS.items()
        if verdict in found
    ]
    grey: dict[str, Any] = {"facecolor": COLOURS["grey"], "linewidth": 0}
    return [
        *marks,
        Patch(alpha=0.32, label="reproduced within", **grey),
        Patch(alpha=0.13, label="partly within", **grey),
    ]


def _caption(finding: Finding, numbered: Sequence[Numbered]) -> str:
    """The claim, its verdict, and how many readings lead to which."""
    counts: Counter[str] = Counter(judged.verdict for _, judged in numbered)
    under = ", ".join(
        f"{verdict} under {counts[verdict]}" for verdict in _MARKERS if counts[verdict]
    )
    return (
        f"The claim “{finding.claim.paper}” under {len(numbered)} readings: {under}. The verdict "
        f"follows from the primary reading and is “{finding.verdict}”."
    )


def _table(numbered: Sequence[Numbered]) -> pd.DataFrame:
    """A row for each reading, with its number, interval, ranges, verdict and choices."""
    rows = []
    for number, judged in numbered:
        e, (reproduced, partly) = _estimate(judged), _ranges(judged)
        row = {"number": number, "reading": judged.reading.name, "primary": judged.reading.primary}
        row |= {"value": e.value, "low": e.low, "high": e.high, "verdict": judged.verdict}
        for name, ends in (("reproduced", reproduced), ("partly", partly)):
            row |= {f"{name} from": ends[0], f"{name} to": ends[1]}
        rows.append(row | _all_choices(judged))
    return pd.DataFrame(rows)


def _alt(finding: Finding, numbered: Sequence[Numbered]) -> str:
    """What the figure shows, in words."""
    unit = finding.claim.unit
    columns = "; ".join(
        f"{number}. {judged.reading.name}{' (primary)' if judged.reading.primary else ''}: "
        f"{judged.text(unit)}, {judged.verdict}"
        for number, judged in numbered
    )
    return (
        f"Readings of the claim “{finding.claim.paper}” ({finding.claim.where}), from the smallest "
        f"value to the largest, with the choices of each. {columns}."
    )
