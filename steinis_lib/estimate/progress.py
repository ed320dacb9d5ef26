"""What shows how far `estimate_log_z` is, by rich."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from steinis_lib.core.optional import needs
from steinis_lib.importance import ImportanceSample

Show = Callable[[str, int, ImportanceSample | None], None]
"""Shows the stage, the evaluations so far, and the best weighted sample so far."""


@contextmanager
def progress_line(wanted: bool | None) -> Iterator[Show]:
    """Give what shows progress on stderr, while the context lasts.

    In a terminal or a notebook, that is one line, which changes; elsewhere, a line for each stage.

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
    console = needs("rich.console", "progress=True", "progress").Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield _Lines(console)
        return
    with console.status("estimate_log_z") as line:
        yield lambda stage, evaluations, best: line.update(text(stage, evaluations, best))


class _Lines:
    """Prints a line whenever a stage begins."""

    def __init__(self, console: Any) -> None:
        self.console, self.stage = console, ""

    def __call__(self, stage: str, evaluations: int, best: ImportanceSample | None) -> None:
        if stage != self.stage:
            self.console.print(text(stage, evaluations, best), highlight=False)
        self.stage = stage


def text(stage: str, evaluations: int, best: ImportanceSample | None) -> str:
    """Return the line: stage, evaluations, and log Z as far as it is known."""
    known = "" if best is None else f", log Z ≈ {float(best.log_z):.2f}"
    return f"{stage}: {evaluations:,} evaluations{known}"
