"""Figures that read well in light and dark mode, on paper and without colour vision.

A figure becomes inline SVG whose text and axes are drawn in the page's own text colour; data
colours are mid-tones with enough contrast on white and on black, and curves are told apart by
dashes and direct labels as well.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = {
    "blue": "#3b82c4",
    "orange": "#c8621b",
    "green": "#2a9170",
    "purple": "#a460b8",
    "red": "#d1495b",
    "olive": "#8a7a20",
    "grey": "#7f7f7f",
}
"""Contrast of at least 3 : 1 both on white and on #121212."""

_TEXT = "#010203"  # stands for the page's text colour until the SVG is written

_STYLE: Any = {
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "text.color": _TEXT,
    "axes.edgecolor": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.titlecolor": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": COLOURS["grey"],
    "grid.alpha": 0.25,
    "axes.titlesize": "medium",
    "axes.titlelocation": "left",
    "font.size": 11,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def use_style() -> None:
    """Set matplotlib's defaults for the figures of this project."""
    mpl.rcParams.update(_STYLE)


def svg(figure: Figure, alt: str) -> str:
    """Return a figure as inline SVG in the page's text colour, with a description for all."""
    salt = "f" + hashlib.sha256(alt.encode()).hexdigest()[:12]
    buffer = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "path"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(_TEXT, "currentColor")
    # Ids must be unique on a page that holds several figures; references follow them.
    for name in set(re.findall(r'id="([^"]+)"', text)):
        for left, right in (('id="', '"'), ('href="#', '"'), ("url(#", ")")):
            text = text.replace(f"{left}{name}{right}", f"{left}{salt}-{name}{right}")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', text)
    assert size is not None
    text = text.replace(size.group(0), f'width="100%" style="max-width:{size.group(1)}pt"', 1)
    label = html.escape(alt, quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


class Picture:
    """What a notebook shows of a figure."""

    def __init__(self, markup: str, alt: str) -> None:
        self.markup, self.alt = markup, alt

    def _repr_html_(self) -> str:
        return f'<div class="steinis-figure">{self.markup}</div>'

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"


def show(figure: Figure, alt: str) -> Picture:
    """Return a figure for a notebook's last line; `alt` says in words what it shows."""
    import matplotlib.pyplot as plt

    shown = Picture(svg(figure, alt), alt)
    plt.close(figure)
    return shown


def band(
    axes: Axes, x: Any, centre: Any, low: Any, high: Any, label: str, colour: str, **line: Any
) -> None:
    """Draw a curve with its band; `label_ends` then writes the label at the curve's end."""
    axes.fill_between(x, low, high, color=COLOURS[colour], alpha=0.2, linewidth=0)
    axes.plot(x, centre, color=COLOURS[colour], label=label, **line)


def label_ends(axes: Axes, gap: float = 0.075) -> None:
    """Write each labelled curve's label at its right end, in its colour, none on another.

    `gap` is the least distance between two labels, as a fraction of the axes' height.
    """
    axes.get_xlim()  # brings limits, and with them transData, up to date with the data
    to_axes = axes.transData + axes.transAxes.inverted()
    lines = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    ends = [to_axes.transform(np.asarray(line.get_xydata())[-1]) for line in lines]
    height = float("-inf")
    for i in sorted(range(len(lines)), key=lambda i: float(ends[i][1])):
        height = max(float(ends[i][1]), height + gap)
        axes.annotate(
            str(lines[i].get_label()),
            (float(ends[i][0]), height),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            color=lines[i].get_color(),
            va="center",
            annotation_clip=False,
        )


def animate(draw: Callable[[Figure, int], None], n_frames: int, alt: str) -> Picture:
    """Return a looping GIF of ``draw(figure, frame)`` on a white card, for a notebook."""
    import matplotlib.pyplot as plt
    from PIL import Image

    dark = {key: "#1a1a1a" for key, value in _STYLE.items() if value == _TEXT}
    frames = []
    with mpl.rc_context({**dark, "figure.facecolor": "white", "savefig.facecolor": "white"}):
        for frame in range(n_frames):
            figure = plt.figure(figsize=(6, 4.2), dpi=90)
            draw(figure, frame)
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png")
            plt.close(figure)
            frames.append(Image.open(buffer).convert("P", palette=Image.Palette.ADAPTIVE))
    buffer = io.BytesIO()
    pause = [120] * (n_frames - 1) + [2500]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=pause, loop=0)
    data = base64.b64encode(buffer.getvalue()).decode()
    label = html.escape(alt, quote=True)
    return Picture(f'<img alt="{label}" src="data:image/gif;base64,{data}"/>', alt)
