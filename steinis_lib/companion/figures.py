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
import math
import re
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from steinis_lib.companion import captions, figure_files
from steinis_lib.companion.figure_axes import label_ends, mark, settle
from steinis_lib.companion.figure_data import BANDS, data_of

__all__ = [
    "COLOURS", "Picture", "animate", "band", "label_ends", "least_width", "mark", "show", "svg",
    "use_style",
]  # fmt: skip

Caption = tuple[str, str]
"""The number of a figure, and its caption."""

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

    def __init__(
        self, markup: str, alt: str, caption: Caption | None = None, least: int = 0
    ) -> None:
        self.markup, self.alt, self.caption, self.least = markup, alt, caption, least

    def _repr_html_(self) -> str:
        if self.caption is None:
            return f'<div class="steinis-figure">{self.markup}</div>'
        return captions.numbered(self.markup, "Figure", *self.caption, least=self.least)

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"


def show(
    figure: Figure,
    alt: str,
    number: str | None = None,
    caption: str = "",
    data: pd.DataFrame | None = None,
) -> Picture:
    """Return a figure for a notebook's last line.

    Parameters
    ----------
    alt
        Says in words what the figure shows, for those who do not see it.
    number
        That of the section and one that counts, such as "5.3". Without it there is no caption.
    caption
        The figure's message, in plain text.
    data
        What its CSV file holds. Default: what can be read off the figure.
    """
    import matplotlib.pyplot as plt

    settle(figure)
    shown = Picture(
        svg(figure, alt), alt, (number, caption) if number else None, least_width(figure)
    )
    if number:
        heading = f"Figure {number}. {caption}"
        figure_files.write(figure, captions.identifier("Figure", number), heading, data)
    plt.close(figure)
    return shown


def least_width(figure: Figure, letters: float = 9.0) -> int:
    """Return the width in pixels at which a figure's smallest words are `letters` pixels high."""
    words = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    smallest = min((float(text.get_fontsize()) for text in words), default=math.inf)
    return math.ceil(72 * figure.get_figwidth() * letters / smallest)


def band(
    axes: Axes, x: Any, centre: Any, low: Any, high: Any, label: str, colour: str, **line: Any
) -> None:
    """Draw a curve with its band; `label_ends` then writes the label at the curve's end."""
    axes.fill_between(x, low, high, color=COLOURS[colour], alpha=0.2, linewidth=0)
    (curve,) = axes.plot(x, centre, color=COLOURS[colour], label=label, **line)
    BANDS[curve] = (low, high)


def animate(
    draw: Callable[[Figure, int], None],
    n_frames: int,
    alt: str,
    number: str | None = None,
    caption: str = "",
) -> Picture:
    """Return a looping GIF of ``draw(figure, frame)`` on a white card, for a notebook.

    With a number it is folded, so that it moves only where a reader wants it to. Its files have the
    data of all frames, and the last frame.
    """
    import matplotlib.pyplot as plt
    from PIL import Image

    dark = {key: "#1a1a1a" for key, value in _STYLE.items() if value == _TEXT}
    frames, tables = [], []
    with mpl.rc_context({**dark, "figure.facecolor": "white", "savefig.facecolor": "white"}):
        for frame in range(n_frames):
            figure = plt.figure(figsize=(6, 4.2), dpi=90)
            draw(figure, frame)
            settle(figure)
            buffer = io.BytesIO()
            figure.savefig(buffer, format="png")
            tables.append(data_of(figure).assign(frame=frame))
            if number and frame == n_frames - 1:
                name, data = captions.identifier("Figure", number), _of_frames(tables)
                figure_files.write(figure, name, f"Figure {number}. {caption}", data)
            plt.close(figure)
            frames.append(Image.open(buffer).convert("P", palette=Image.Palette.ADAPTIVE))
    buffer = io.BytesIO()
    pause = [120] * (n_frames - 1) + [2500]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], duration=pause, loop=0)
    encoded = base64.b64encode(buffer.getvalue()).decode()
    label = html.escape(alt, quote=True)
    image = f'<img alt="{label}" src="data:image/gif;base64,{encoded}"/>'
    if number is None:
        return Picture(image, alt)
    return Picture(captions.folded(image, "Play the animation"), alt, (number, caption))


def _of_frames(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """The data of all frames; what stays as it is, such as a contour, is in the first one only."""
    data = pd.concat(tables, ignore_index=True)
    places = [column for column in data if column not in ("panel", "frame")]
    return data.drop_duplicates(subset=places)
