"""A line that shows how far `estimate_log_z` is, by rich."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from steinis_lib.core.optional import needs
from steinis_lib.importance import ImportanceSample

Show = Callable[[str, int, ImportanceSample | None], None]
"""Shows the stage, the evaluations so far, and the best weighted sample so far."""


@contextmanager
def progress_line(wanted: bool | None) -> Iterator[Show]:
    """Give what shows progress on stderr, while the context lasts.

    Parameters
    ----------
    wanted
        None: only if stderr is a terminal and rich is installed.

    Raises
    ------
    ImportError
        If it is wanted, and rich is not installed.
    """
    if wanted is None:
        wanted = sys.stderr.isatty() and find_spec("rich") is not None
    if not wanted:
        yield lambda _stage, _evaluations, _best: None
        return
    status = needs("rich.status", "progress=True", "progress")
    console = needs("rich.console", "progress=True", "progress").Console(stderr=True)
    with status.Status("estimate_log_z", console=console) as line:
        yield lambda stage, evaluations, best: line.update(text(stage, evaluations, best))


def text(stage: str, evaluations: int, best: ImportanceSample | None) -> str:
    """Return the line: stage, evaluations, and log Z as far as it is known."""
    known = "" if best is None else f", log Z ≈ {float(best.log_z):.2f}"
    return f"{stage}: {evaluations:,} evaluations{known}"
