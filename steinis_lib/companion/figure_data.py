"""The numbers that a matplotlib figure shows, as a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter

COLUMNS = ("panel", "series", "x", "y", "x_low", "x_high", "y_low", "y_high", "value")

BANDS: WeakKeyDictionary[Line2D, tuple[Any, Any]] = WeakKeyDictionary()
"""The lower and upper edge of a curve's band."""

Part = dict[str, Any]


def data_of(figure: Figure) -> pd.DataFrame:
    """Return what a figure shows, a row for each point, bar, interval or pixel.

    Columns are those of `COLUMNS` that are needed: where it is (``panel``), the label of its curve
    or the level of its contour (``series``), its place, and the ends of its interval, band or bar.
    Lines across a whole panel, and areas, are left out. ``attrs["axes"]`` says in words what x and
    y are in each panel.
    """
    tables, words = [], []
    for number, axes in enumerate(figure.axes, 1):
        parts = [pd.DataFrame(part) for part in _parts(axes)]
        if not parts:
            continue
        panel = plain(axes.get_title(loc="left")) or f"panel {number}"
        found = pd.concat(parts, ignore_index=True)
        for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
            if name in found:
                found[name] = _categories(axis, found[name])
        tables.append(found.assign(panel=panel))
        x, y = (plain(_shared_label(axes, name)) or name for name in ("x", "y"))
        words.append(f"{panel}: x is {x}; y is {y}")
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"panel": []})
    table = table[[column for column in COLUMNS if column in table and table[column].notna().any()]]
    table.attrs["axes"] = words
    return table


def plain(text: str) -> str:
    """Return a label of a figure without the commands of its formulas."""
    text = text.replace("\\hat Z", "Ẑ").replace("\\|", "‖").replace("\\epsilon", "ε")
    text = text.replace("\\ell", "ℓ").replace("\n", " ")
    return re.sub(r"\\mathrm|[${}\\]", "", text).strip()


def _parts(axes: Axes) -> Iterator[Part]:
    """What each artist of a panel shows."""
    seen: set[Any] = set()
    for container in axes.containers:
        seen |= set(container.get_children())
        if isinstance(container, ErrorbarContainer):
            yield _intervals(container)
        elif isinstance(container, BarContainer):
            yield _bars(container)
    for line in axes.get_lines():
        if line not in seen and line.get_transform() == axes.transData:
            x, y = (_plain(values) for values in line.get_data(orig=True))
            low, high = BANDS.get(line, (np.nan, np.nan))
            series = _series(line)
            yield {"series": series, "x": x, "y": y, "y_low": low, "y_high": high}
    for collection in axes.collections:
        if isinstance(collection, ContourSet):
            yield from _contours(collection)
        elif isinstance(collection, PathCollection):
            x, y = np.asarray(collection.get_offsets()).T
            yield {"series": _series(collection), "x": x, "y": y}
    for image in axes.get_images():
        pixels = np.asarray(image.get_array())
        y, x = (grid.ravel() for grid in np.indices(pixels.shape[:2]))
        yield {"series": "pixels", "x": x, "y": y, "value": pixels.ravel()}


def _intervals(container: ErrorbarContainer) -> Part:
    """Points, and the ends of their intervals along either axis."""
    line, _, bars = container.lines
    x, y = (_plain(values) for values in line.get_data(orig=True))
    part: Part = {"series": _series(container), "x": x, "y": y}
    names = ["x"] * container.has_xerr + ["y"] * container.has_yerr
    for name, bar in zip(names, bars, strict=True):
        ends = np.array([segment[:, "xy".index(name)] for segment in bar.get_segments()])
        part[f"{name}_low"], part[f"{name}_high"] = ends.min(1), ends.max(1)
    return part


def _plain(values: Any) -> Any:
    """Values as numbers where they are numbers, else as they are."""
    values = np.atleast_1d(np.asarray(values))
    try:
        return values.astype(float)
    except ValueError:
        return values


def _bars(container: BarContainer) -> Part:
    """Bars: their middle and ends, and their height."""
    low = np.array([bar.get_x() for bar in container.patches])
    width = np.array([bar.get_width() for bar in container.patches])
    height = [bar.get_height() for bar in container.patches]
    series = _series(container) or _series(container.patches[0])
    return {
        "series": series, "x": low + width / 2, "x_low": low, "x_high": low + width, "y": height,
    }  # fmt: skip


def _contours(contours: ContourSet) -> Iterator[Part]:
    """The lines of each level; a level can have several."""
    for level, path in zip(contours.levels, contours.get_paths(), strict=True):
        for number, polygon in enumerate(path.to_polygons(closed_only=False), 1):
            x, y = np.asarray(polygon).T
            yield {"series": f"contour {number} at {level:.3g}", "x": x, "y": y}


def _series(artist: Any) -> str:
    """An artist's label; those that a legend leaves out begin with an underscore."""
    label = str(artist.get_label() or "")
    return (
        "" if re.match(r"_(child\d+|nolegend_|container\d+)", label) else plain(label.lstrip("_"))
    )


def _categories(axis: Axis, values: pd.Series[Any]) -> pd.Series[Any]:
    """The words at an axis's ticks in the place of numbers, where ticks are 0, 1, 2 and so on."""
    locator, formatter = axis.get_major_locator(), axis.get_major_formatter()
    if not (isinstance(locator, FixedLocator) and isinstance(formatter, FuncFormatter)):
        return values
    places = [float(place) for place in locator()]
    if places != list(range(len(places))):
        return values
    names = [plain(name) for name in formatter.format_ticks(places)]
    return values.map(lambda v: names[round(v)] if -0.5 < v < len(names) - 0.5 else v)


def _shared_label(axes: Axes, name: str) -> str:
    """An axis's label, or that of a panel whose axis it shares."""
    group = getattr(axes, f"get_shared_{name}_axes")().get_siblings(axes)
    labels = (getattr(other, f"get_{name}label")() for other in (axes, *group))
    return next((label for label in labels if label), "")
