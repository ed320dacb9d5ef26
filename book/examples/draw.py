"""Draw the figures of the foundations and method pages, as SVG that follows light and dark mode."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

import steinis_lib
from examples import foundations_figures, method_figures
from steinis_lib.companion.figures import svg, use_style
from steinis_lib.core.files import replacing

DRAWINGS = foundations_figures.DRAWINGS | method_figures.DRAWINGS


def draw_all(folder: Path) -> None:
    """Write ``<name>.svg`` for each of `DRAWINGS` into a folder, which takes several seconds."""
    with mpl.rc_context():
        use_style()
        for name, drawing in DRAWINGS.items():
            figure, alt = drawing()
            with replacing(folder / f"{name}.svg") as path:
                path.write_text(svg(figure, alt) + "\n", encoding="utf-8")


def draw_if_needed(folder: Path) -> None:
    """Write all figures, unless each is there and newer than the code that makes it."""
    own, library = Path(__file__).parent, Path(steinis_lib.__file__).parent
    newest = max(path.stat().st_mtime for place in (own, library) for path in place.rglob("*.py"))
    figures = [folder / f"{name}.svg" for name in DRAWINGS]
    if all(path.is_file() and path.stat().st_mtime > newest for path in figures):
        return
    draw_all(folder)
