"""Plain text: tables, and paragraphs that hang from a mark."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

WIDTH = 79
"""The longest line."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first column is flush left, and the others flush right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(row: Sequence[str]) -> str:
        first, *rest = (
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join([first, *rest]).rstrip()

    return "\n".join(map(line, [header, *rows]))


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    """Return lines of a name and what it is, the latter in one column."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {text}" for name, text in rows)


def hanging(mark: str, words: str) -> str:
    """Return a paragraph that begins with a mark, its later lines indented."""
    return textwrap.fill(f"{mark}{words}", WIDTH, subsequent_indent=" " * len(mark))
