"""Verdicts on claims by SteinIS with a pool of leaders and whitened kernels.

Both ideas are later than the paper, so that these verdicts stand beside a claim's own and change
nothing about it. A claim is judged within its own ranges; a section says by which statistic
(`Section.with_pool`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import xarray as xr

from steinis_lib.companion.reading_claims import Judged, Range, Reading, judge
from steinis_lib.companion.registry import WITH_POOL

NAME = "with a pool"


def experiment_of(claim: str) -> set[str]:
    """Return the experiment with a pool that judges a claim, if there is one."""
    return {WITH_POOL[claim][0]} if claim in WITH_POOL else set()


def why_not(claim: str) -> str:
    """Return in a few words why a claim is not judged with a pool; "" if it is."""
    _, look = WITH_POOL.get(claim, ("", "not run with a pool"))
    return look if isinstance(look, str) else ""


def judged(
    claim: str, ranges: tuple[Range, Range], theirs: xr.DataTree | None,
    trees: Mapping[str, xr.DataTree | None],
) -> Judged | None:  # fmt: skip
    """Judge a claim by the stored result with a pool; None if no section does.

    Parameters
    ----------
    ranges
        `reproduced` and `partly`.
    theirs
        The result of the claim's own experiment.
    trees
        Experiment → its stored result, if there is one.

    Raises
    ------
    ValueError
        If the statistic fails or gives NaN. It names the claim.
    """
    name, look = WITH_POOL.get(claim, ("", ""))
    if isinstance(look, str):
        return None
    reading, ours = Reading(name=NAME, why=look.how), trees.get(name)
    if ours is None or theirs is None:
        return Judged(reading, {}, ranges)
    try:
        estimate = look.statistic(ours, theirs)
        verdict = judge(estimate, *ranges)
    except Exception as error:
        raise ValueError(f"{claim}, {NAME}: {type(error).__name__}: {error}") from error
    return Judged(reading, {}, ranges, estimate, verdict)


def discrepancies(found: Judged | None, old: Mapping[str, Any] | None, claim: str) -> list[str]:
    """Return, a line each, where the verdict published with a pool differs from the data."""
    name = f"{claim}, {NAME}"
    if found is not None:
        return found.discrepancies(old, name)
    return [] if old is None else [f"{name}: a verdict is published, but no section judges it"]
