"""What the commands share: output, errors, progress bars."""

from __future__ import annotations

import math

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

out, err = Console(), Console(stderr=True)


def fail(message: str, code: int) -> typer.Exit:
    """Print an error, and return what ends the command with an exit code."""
    err.print(f"[bold red]error[/] {escape(message)}", soft_wrap=True)
    return typer.Exit(code)


def progress_bar(unit: str = "chunks") -> Progress:
    """Return a progress bar on stderr with the time elapsed and remaining."""
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit),
        TimeElapsedColumn(), TextColumn("elapsed,"), TimeRemainingColumn(), TextColumn("remaining"),
        console=err,
        speed_estimate_period=math.inf,  # a chunk may take longer than the default, 30 seconds
    )  # fmt: skip
