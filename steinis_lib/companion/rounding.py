"""How far rounding errors move the stored numbers: measured, and kept in ``data/rounding.json``.

Other processors round otherwise, and a recursion of hundreds of transitions can amplify that until
the results have nothing in common. ``benchmarks/rounding.py`` computes chunks again under other
instruction sets, and with random inputs moved by one unit in the last place. The largest difference
that it finds is the *spread* of a variable, for each method. Where a chunk differs by more,
verification measures it once more for that chunk.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import xarray as xr

from steinis_lib.companion.checkout import DATA

FILE = DATA / "rounding.json"
Spread = float | dict[str, float]
"""One number; or one for each number of transitions, because rounding errors grow with these. Over
all other dimensions it is the maximum."""
Spreads = Mapping[str, Mapping[str, Mapping[str, Spread]]]
"""Experiment → method → variable → its spread."""


@cache
def measured() -> Spreads:
    """Return the spreads that were measured; none if there is no file of them."""
    return json.loads(FILE.read_text("utf-8"))["spreads"] if FILE.is_file() else {}


@cache
def seconds() -> Mapping[str, Mapping[str, float]]:
    """Return experiment → method → seconds that a chunk took on one core when it was measured."""
    return json.loads(FILE.read_text("utf-8")).get("seconds", {}) if FILE.is_file() else {}


def spread_like(spread: Spread, variable: xr.DataArray) -> xr.DataArray:
    """Return a spread with a variable's dimension of transitions, if it has them, or none.

    What was never measured, such as other numbers of transitions, has the largest spread that was.
    """
    if isinstance(spread, dict):
        largest = max(spread.values())
        numbers = [str(n) for n in variable.transitions.values]
        return xr.DataArray([spread.get(n, largest) for n in numbers], dims="transitions")
    return xr.DataArray(spread)


def spread_between(one: xr.DataArray, other: xr.DataArray) -> Spread:
    """Return the largest difference of two variables of the same shape, kept apart as above."""
    distance = difference(one, other)
    if "transitions" not in distance.dims:
        return float(distance.max())
    largest = distance.max([d for d in distance.dims if d != "transitions"])
    numbers = map(str, largest.transitions.values)
    return dict(zip(numbers, map(float, largest.values), strict=True))


def larger(one: Spread | None, other: Spread) -> Spread:
    """Return the larger of two spreads of a variable, at each place."""
    if one is None:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        return {k: max(one.get(k, 0.0), other.get(k, 0.0)) for k in {**one, **other}}
    assert isinstance(one, float) and isinstance(other, float)
    return max(one, other)


def difference(one: xr.DataArray, other: xr.DataArray) -> xr.DataArray:
    """Return |one - other|: 0 where both are NaN, or the same infinity; ∞ where only one is."""
    a, b = one.transpose(*other.dims).values.astype(float), other.values.astype(float)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    both = np.isfinite(a) & np.isfinite(b)
    distance = np.full(a.shape, np.inf)
    distance[both] = np.abs(a[both] - b[both])
    distance[same] = 0.0
    return other.copy(data=distance)


@contextmanager
def nudged(steps: int = 1) -> Iterator[None]:
    """Within the context, move all random numbers that PyTorch draws by units in the last place.

    Uniform numbers move towards 1/2, so that they stay in the unit interval.

    Parameters
    ----------
    steps
        By how many units. Where it is negative, normal numbers become smaller and not larger.
    """

    def moved(draw: Any, towards: float) -> Any:
        def drawn(*args: Any, **options: Any) -> Any:
            values = draw(*args, **options)
            for _ in range(abs(steps)):
                values = torch.nextafter(values, torch.full_like(values, towards))
            return values

        return drawn

    end = torch.inf if steps > 0 else -torch.inf
    with (
        patch.object(torch, "randn", moved(torch.randn, end)),
        patch.object(torch, "rand", moved(torch.rand, 0.5)),
    ):
        yield
