"""What the figures of the foundations and method pages share."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from steinis_lib.companion.figures import COLOURS

Drawing = tuple[Figure, str]
"""A figure, and what it shows in words."""


def panels(n: int = 2, width: float = 7.0) -> tuple[Figure, list[Axes]]:
    """Return a figure with n panels beside each other."""
    figure = Figure(figsize=(width, 3.2))
    return figure, list(figure.subplots(1, n, squeeze=False)[0])


def line(axes: Axes, x: Any, y: Any, label: str, colour: str, style: str = "-") -> None:
    """Draw a curve, to be labelled at its right end."""
    axes.plot(x, y, style, color=COLOURS[colour], label=label)


def note(axes: Axes, text: str, x: float, y: float, colour: str, align: str = "left") -> None:
    """Write a text in data coordinates, in the colour of what it names."""
    axes.text(x, y, text, color=COLOURS[colour], ha=align, va="center")
