"""What a target of the benchmark is: a density, where to start, and the truth of log Z."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from steinis_lib import Gaussian

LogDensity = Callable[[Tensor], Tensor]
How = Literal["closed form", "quadrature", "enumeration", "long run"]
Expected = Literal["right", "flagged", "unseen"]

GROUPS = {
    "smooth": "smooth and skewed",
    "heavy": "heavy tails",
    "scaled": "badly scaled, or far from q0",
    "modes": "several modes",
    "hierarchical": "hierarchical",
    "curved": "curved",
    "flat": "flat and improper",
    "models": "real models with data",
    "numerics": "float32 and much data",
}
"""The classes of targets, and their names in words."""


@dataclass(frozen=True)
class Truth:
    """The true log Z.

    Parameters
    ----------
    log_z
        log Z; infinite where the density is improper.
    error
        How far it may be off, in nats: a standard error for a long run, 0 for a closed form.
    how
        How it was obtained. "enumeration" is a sum over a discrete parameter, of closed forms or
        of quadratures.
    """

    log_z: float
    error: float
    how: How


@dataclass(frozen=True)
class Prior:
    """A normalised density on R^d as the image of the unit cube, for nested samplers.

    Parameters
    ----------
    transform
        Points of the unit cube ``(n, d)`` → particles ``(n, d)``.
    log_prob
        The log-density of what `transform` makes of uniform points, ``(n, d)`` → ``(n,)``.
    """

    transform: Callable[[Tensor], Tensor]
    log_prob: LogDensity


@dataclass(frozen=True)
class Case:
    """A target with a known log Z.

    Parameters
    ----------
    name
        Unique; it is in the results.
    group
        Its class, a key of `GROUPS`.
    dim
        d.
    log_prob
        log p̄, ``(n, d)`` → ``(n,)``, on all of R^d.
    find_truth
        Computes log Z. `truth` keeps what it returns.
    source
        Where the problem is from.
    q0
        What a user would start from; None for the default of `estimate_log_z`.
    prior
        What nested samplers integrate over, where `q0` would not do; see `cube.unit_cube`.
    expected
        "right": an estimate without a warning should be right. "flagged": the density is improper,
        or its rounding noise too large, and a method should refuse or warn. "unseen": no method
        that only evaluates log p̄ can be expected to find all of the mass.
    notes
        What is hard about it.
    dtype
        Of the particles.
    """

    name: str
    group: str
    dim: int
    log_prob: LogDensity
    find_truth: Callable[[], Truth]
    source: str
    q0: Gaussian | None = None
    prior: Prior | None = None
    expected: Expected = "right"
    notes: str = ""
    dtype: torch.dtype = torch.float64

    @cached_property
    def truth(self) -> Truth:
        """The true log Z, computed when it is first asked for."""
        return self.find_truth()

    @property
    def start(self) -> Gaussian:
        """`q0`, or the default of `estimate_log_z`."""
        if self.q0 is not None:
            return self.q0
        return Gaussian.isotropic(torch.zeros(self.dim, dtype=self.dtype))


def closed(log_z: float) -> Callable[[], Truth]:
    """Return what gives a truth in closed form."""
    return lambda: Truth(float(log_z), 0.0, "closed form")


def start(
    mean: float | Sequence[float] | Tensor,
    scale: float | Sequence[float] | Tensor,
    dim: int | None = None,
    dtype: torch.dtype = torch.float64,
) -> Gaussian:
    """Return N(mean, diag(scale²)); numbers are repeated, `dim` times where both are numbers."""
    m, s = (torch.as_tensor(value, dtype=torch.float64) for value in (mean, scale))
    shape = torch.broadcast_shapes(m.shape, s.shape, () if dim is None else (dim,))
    return Gaussian(m.expand(shape).to(dtype), torch.diag(s.expand(shape)).to(dtype))
