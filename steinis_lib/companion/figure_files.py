"""A figure as files beside the page that shows it: its data as CSV, the figure as SVG and PDF.

They are written where the environment variable `VARIABLE` names a folder, as the book's build does.
A notebook that somebody runs for himself leaves no files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from steinis_lib.companion.figure_data import data_of
from steinis_lib.core.files import replacing

VARIABLE = "STEINIS_FIGURES"
"""Environment variable that names the folder for files of figures."""


def write(figure: Figure, name: str, heading: str, data: pd.DataFrame | None = None) -> Path | None:
    """Write the files of a figure, and return their folder, or None if there is none to write to.

    Parameters
    ----------
    name
        Of the files, without their endings.
    heading
        What the figure shows, for the first line of the CSV, which is a comment.
    data
        Default: what `data_of` reads off the figure.
    """
    if not (named := os.environ.get(VARIABLE)):
        return None
    folder = Path(named)
    table = data_of(figure) if data is None else data
    comments = [heading, *table.attrs.get("axes", ())]
    with replacing(folder / f"{name}.csv") as scratch:
        lines = "".join(f"# {' '.join(line.split())}\n" for line in comments)
        scratch.write_text(lines + table.to_csv(index=False, float_format="%.6g"), "utf-8")
    style: Any = {"svg.hashsalt": name, "svg.fonttype": "path", "savefig.facecolor": "white"}
    with mpl.rc_context(style):
        with replacing(folder / f"{name}.svg") as scratch:
            figure.savefig(scratch, format="svg", metadata={"Date": None, "Creator": None})
        with replacing(folder / f"{name}.pdf") as scratch:
            dates = {"CreationDate": None, "Creator": None, "Producer": None}
            figure.savefig(scratch, format="pdf", metadata=dates)
    return folder
