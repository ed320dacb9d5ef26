"""What every notebook begins with and shows: its data, verdicts, and readings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import xarray as xr

from steinis_lib.companion import claims, figures, second_looks
from steinis_lib.companion.conditions import conditions, origin
from steinis_lib.companion.figures import Picture
from steinis_lib.companion.obtain import obtain
from steinis_lib.companion.parameters import notebook_parameters
from steinis_lib.companion.reading_figures import readings_figure
from steinis_lib.companion.registry import SECTIONS
from steinis_lib.companion.tables import Table, interval, number, table

__all__ = [
    "begin", "conditions", "interval", "number", "origin", "readings", "report", "table",
    "verdicts",
]  # fmt: skip


def begin(name: str, namespace: Mapping[str, Any]) -> tuple[Any, xr.DataTree]:
    """Return a notebook's validated parameters and its result, and set the style of figures.

    Parameters
    ----------
    name
        The section.
    namespace
        The notebook's ``globals()``, before it defines anything but its parameters.

    Raises
    ------
    ParameterError
        If a parameter is unknown, of the wrong type, or out of range. Nothing is computed then.
    """
    given = notebook_parameters(namespace)
    cls = SECTIONS[name].experiments[0].parameters
    parameters = cls.of_profile(given.pop("profile"), given)
    figures.use_style()
    return parameters, obtain(name, parameters, report)


def report(done: int, total: int, chunk: object) -> None:
    """Print a line at the beginning and at the end of a computation."""
    if chunk is None or done == total:
        print(f"{done} of {total} chunks computed")


def verdicts(*experiments: str, number: str | None = None, paper_values: bool = False) -> Table:
    """Return a table of the claims that experiments test, at the paper's sizes.

    `number` is the table's; `paper_values` adds a column with the paper's figures, for claims that
    do not state them.
    """
    found = claims.evaluate([c for c in claims.ledger() if c.experiment in experiments])
    columns = {"claim": [f.claim.paper for f in found]}
    if paper_values:
        columns["paper"] = [f.claim.paper_value for f in found]
    columns["ours, 95 % interval"] = [_ours(f) for f in found]
    columns["verdict"] = [f.verdict for f in found]
    columns["readings"] = [f.robustness for f in found]
    if any(f.with_pool for f in found):
        columns[second_looks.NAME] = [f.with_pool.verdict if f.with_pool else "–" for f in found]
    counts = Counter(f.verdict for f in found)
    words = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    caption = (
        f"The claims of this section and our verdicts, from the stored results at the paper's "
        f"sizes. Of {len(found)} claims: {words}."
    )
    if second_looks.NAME in columns:
        caption += (
            " The last column is the verdict on SteinIS with a pool of leaders and whitened "
            "kernels, which are later than the paper (Section 8)."
        )
    return table(columns, number, caption, longest=len(found))


def _ours(finding: claims.Finding) -> str:
    """The estimate that a verdict follows from, with two digits."""
    if finding.estimate is None:
        return finding.ours
    return f"{interval(finding.estimate)} {finding.claim.unit}".strip()


def readings(claim: str, number: str | None = None) -> Picture:
    """Return the figure of all readings of a claim, at the paper's sizes; `number` is its own.

    Raises
    ------
    ValueError
        If the ledger has no such claim, or fewer than two of its readings have been run.
    """
    ledger = claims.ledger()
    found = claims.evaluate([c for c in ledger if c.id == claim])
    if not found:
        raise ValueError(f"no claim {claim!r}; the ledger has {', '.join(c.id for c in ledger)}")
    if (figure := readings_figure(found[0], number)) is None:
        raise ValueError(f"{claim}: fewer than two readings have been run")
    return figure
