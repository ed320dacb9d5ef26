"""Tables of numbers with intervals, as a notebook shows them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from steinis_lib.companion import captions
from steinis_lib.companion.intervals import Estimate

Row = Mapping[str, Any]

LONGEST = 12
"""A table with more rows than these is folded."""


class Table:
    """A table without an index column, with a number and a caption if it is given a number.

    It is folded if it has more rows than `longest`.
    """

    def __init__(
        self,
        data: pd.DataFrame,
        number: str | None = None,
        caption: str = "",
        longest: int = LONGEST,
    ) -> None:
        self.data, self.number, self.caption, self.longest = data, number, caption, longest

    def markup(self) -> str:
        """Return the table alone, as HTML."""
        left = {"selector": "th, td", "props": "text-align: left; vertical-align: top"}
        style = self.data.style.hide(axis="index").set_table_styles([left])
        identifier = captions.identifier("Table", self.number) if self.number else "unnumbered"
        return _kept_together(str(style.to_html(cell_ids=False, table_uuid=identifier)))

    def _repr_html_(self) -> str:
        body = self.markup()
        if len(self.data) > self.longest:
            body = captions.folded(body, f"Show the {len(self.data)} rows")
        if self.number is None:
            return body
        return captions.numbered(body, "Table", self.number, self.caption)

    def __repr__(self) -> str:
        name = f"Table {self.number}. {self.caption}\n" if self.number else ""
        return name + self.data.to_string(index=False)


def _kept_together(text: str) -> str:
    """The same HTML, where no line ends between the two ends of an interval."""
    return re.sub(r"\[([^\s\[\]<>]+), ([^\s\[\]<>]+)\]", "[\\1,\N{NO-BREAK SPACE}\\2]", text)


def table(
    rows: Sequence[Row] | Mapping[str, Sequence[Any]],
    number: str | None = None,
    caption: str = "",
    longest: int = LONGEST,
) -> Table:
    """Return a table for a notebook's last line; one of more rows than `longest` is folded.

    `number` is that of the section and one that counts, such as "5.3"; `caption` is plain text.
    """
    return Table(pd.DataFrame(rows), number, caption, longest)


def number(value: float, digits: int = 2) -> str:
    """Return a number with so many digits that count, and no power of ten if it is large.

    From 100 on it has three digits at least.
    """
    if abs(float(f"{value:.{digits}g}")) >= 100:
        digits = max(digits, 3)
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"


def interval(estimate: Estimate, digits: int = 2, scale: float = 1.0) -> str:
    """Return a number with its interval as text, all times `scale`."""
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (number(scale * x, digits) for x in ends)
    return f"{value} [{low}, {high}]"
