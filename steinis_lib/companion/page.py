"""What every notebook begins with and shows: its data, and tables of numbers with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import xarray as xr
from pandas.io.formats.style import Styler

from steinis_lib.companion import claims, figures
from steinis_lib.companion.figures import Picture
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.obtain import obtain
from steinis_lib.companion.parameters import notebook_parameters
from steinis_lib.companion.reading_figures import readings_figure
from steinis_lib.companion.registry import SECTIONS
from steinis_lib.companion.results import attributes

Row = Mapping[str, Any]


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


def origin(data: xr.DataTree) -> str:
    """Return when, with what and at which commits a result was computed, for a sentence."""
    parts = attributes(data)["provenance"]
    machines, versions, commits = (
        list(dict.fromkeys(part[key] for part in parts)) for key in ("machine", "torch", "commit")
    )
    split = f" in {len(parts)} parts" if len(parts) > 1 else ""
    if len(machines) > 1:
        split += f" on {len(machines)} kinds of machine"
    first, last = parts[0]["created"][:10], parts[-1]["created"][:10]
    when = first if first == last else f"from {first} to {last}"
    at = "commit" if len(commits) == 1 else "commits"
    return (
        f"computed{split} {when} with PyTorch {' and '.join(versions)}, "
        f"at {at} {' and '.join(commits)}"
    )


def table(rows: Sequence[Row] | Mapping[str, Sequence[Any]]) -> Styler:
    """Return a table without an index column, its text at the left."""
    return pd.DataFrame(rows).style.hide(axis="index").set_properties(**{"text-align": "left"})


def number(value: float, digits: int = 3) -> str:
    """Return a number with so many digits that count, and no power of ten if it is large.

    From 100 on it has three digits at least.
    """
    if abs(float(f"{value:.{digits}g}")) >= 100:
        digits = max(digits, 3)
    rounded = float(f"{value:.{digits}g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 ** (digits - 1) else f"{rounded:.{digits}g}"


def interval(estimate: Estimate, digits: int = 3, scale: float = 1.0) -> str:
    """Return a number with its interval as text, all times `scale`."""
    ends = (estimate.value, estimate.low, estimate.high)
    value, low, high = (number(scale * x, digits) for x in ends)
    return f"{value} [{low}, {high}]"


def verdicts(*experiments: str, paper_values: bool = False) -> Styler:
    """Return a table of the claims that experiments test, at the paper's sizes.

    `paper_values` adds a column with the paper's figures, for claims that do not state them.
    """
    found = claims.evaluate([c for c in claims.ledger() if c.experiment in experiments])
    columns = {"claim": [f.claim.paper for f in found]}
    if paper_values:
        columns["paper"] = [f.claim.paper_value for f in found]
    columns["ours, 95 % interval"] = [f.ours for f in found]
    columns["verdict"] = [f.verdict for f in found]
    columns["readings"] = [f.robustness for f in found]
    return table(columns)


def readings(claim: str) -> Picture:
    """Return the figure of all readings of a claim, at the paper's sizes.

    Raises
    ------
    ValueError
        If the ledger has no such claim, or fewer than two of its readings have been run.
    """
    ledger = claims.ledger()
    found = claims.evaluate([c for c in ledger if c.id == claim])
    if not found:
        raise ValueError(f"no claim {claim!r}; the ledger has {', '.join(c.id for c in ledger)}")
    if (figure := readings_figure(found[0])) is None:
        raise ValueError(f"{claim}: fewer than two readings have been run")
    return figure
