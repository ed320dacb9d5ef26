"""All targets of the benchmark."""

from __future__ import annotations

from evidence import (
    counts,
    curved,
    groups,
    heavy,
    hierarchical,
    improper,
    many_modes,
    modes,
    numerics,
    regressions,
    scaled,
    series,
    smooth,
)
from evidence.case import Case

CASES: dict[str, Case] = {
    case.name: case
    for module in (
        smooth,
        heavy,
        scaled,
        modes,
        many_modes,
        hierarchical,
        groups,
        curved,
        improper,
        regressions,
        series,
        counts,
        numerics,
    )
    for case in module.CASES
}
"""By name, class after class."""
