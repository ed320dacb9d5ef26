"""Numerical truths: quadrature in up to three dimensions, and long importance runs.

`on_grid` is the trapezoidal rule, which converges faster than any power of the spacing for smooth
densities that decay before the grid ends. Its error is the difference from half as many intervals.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from evidence.case import LogDensity, Truth
from steinis_lib.core.files import replacing

STORED = Path(__file__).with_name("long_runs.json")
CHUNK = 200_000
"""Points of a grid that are evaluated at once."""
LEAST = 1e-9
"""The least error that is claimed for a quadrature."""

Bounds = Sequence[tuple[float, float]]


def on_grid(log_f: LogDensity, bounds: Bounds, intervals: int | Sequence[int]) -> Truth:
    """Integrate exp(log_f) over a box.

    Parameters
    ----------
    log_f
        ``(n, d)`` → ``(n,)``.
    bounds
        Where the box ends along each axis; the density must be negligible there.
    intervals
        Along each axis, an even number.
    """
    counts = [intervals] * len(bounds) if isinstance(intervals, int) else list(intervals)
    axes = [
        torch.linspace(low, high, n + 1, dtype=torch.float64)
        for (low, high), n in zip(bounds, counts, strict=True)
    ]
    values = _values(log_f, axes)
    fine, coarse = (_trapezoid(values, axes, step) for step in (1, 2))
    return Truth(fine, max(abs(fine - coarse), LEAST), "quadrature")


def _values(log_f: LogDensity, axes: list[Tensor]) -> Tensor:
    """Return log_f on the grid, with an axis for each of `axes`."""
    rest = torch.cartesian_prod(*axes[1:]).reshape(-1, len(axes) - 1) if axes[1:] else None
    if rest is None:
        return torch.cat([log_f(piece.unsqueeze(-1)) for piece in axes[0].split(CHUNK)])
    rows = []
    for first in axes[0]:
        x = torch.cat([first.expand(len(rest), 1), rest], -1)
        rows.append(torch.cat([log_f(piece) for piece in x.split(CHUNK)]))
    return torch.stack(rows).reshape([len(axis) for axis in axes])


def _trapezoid(values: Tensor, axes: list[Tensor], step: int) -> float:
    for axis in reversed(axes):
        values = values[..., ::step].clone()
        values[..., [0, -1]] -= math.log(2)
        values = values.logsumexp(-1) + math.log(float(axis[step] - axis[0]))
    return float(values)


def line(log_f: LogDensity, low: float, high: float, intervals: int = 4000) -> float:
    """Integrate exp(log_f) over an interval; log_f maps ``(n,)`` to ``(n,)``."""
    return on_grid(lambda x: log_f(x[:, 0]), [(low, high)], intervals).log_z


def long_run(name: str) -> Callable[[], Truth]:
    """Return what reads the truth that `importance_run` found for a case."""

    def read() -> Truth:
        stored = json.loads(STORED.read_text("utf-8"))
        if name not in stored:
            raise KeyError(f"{STORED.name} has no run for {name}: python -m evidence.long_runs")
        return Truth(stored[name]["log_z"], stored[name]["se"], "long run")

    return read


def store(name: str, found: dict[str, float | int | str]) -> None:
    """Keep the result of a long run."""
    runs = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    runs[name] = found
    with replacing(STORED) as path:
        path.write_text(json.dumps(dict(sorted(runs.items())), indent=1) + "\n", "utf-8")
