"""The floor law: KL(q_K‖p) by the number of leaders, a fit of it, and what theory says.

The fit is KL = c |A|^(-γ) + b in logarithms, weighted by how much KL varies between runs. The floor
b is there only if the sum of squares says so. Intervals come from resampling the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from scipy.optimize import least_squares
from scipy.stats import chi2

from steinis_lib.companion.intervals import Array, Estimate, resamples
from steinis_lib.companion.sections.s8_pooled.settings import (
    Pooled,
    answer_label,
    floor_label,
    product_label,
)

HOPED = 0.003
"""Nats of KL: the paper's figure on the bent mixture."""


@dataclass(frozen=True)
class Law:
    """A fit of KL by the number of leaders.

    Parameters
    ----------
    floor
        b; 0 if there is none.
    needed
        How many leaders `HOPED` takes; inf where b is above it.
    largest
        The most leaders that were run.
    """

    factor: Estimate
    exponent: Estimate
    floor: Estimate
    needed: Estimate
    largest: int

    @property
    def extrapolated(self) -> bool:
        """Whether `needed` lies beyond what was run."""
        return self.needed.value > self.largest

    def at(self, n: Array) -> Array:
        """Return the KL that the fit has at numbers of leaders."""
        return np.asarray(self.factor.value * n**-self.exponent.value + self.floor.value)


def leaders(tree: xr.DataTree, target: str, kind: str) -> tuple[Array, list[Array]]:
    """Return numbers of leaders that were run, and KL after the last transition of each run."""
    p = Pooled.model_validate_json(tree.attrs["parameters"])
    run = [n for n in p.floor_leaders if floor_label(target, kind, n) in tree.children]
    found = [tree[floor_label(target, kind, n)].to_dataset().kl for n in run]
    return np.array(run), [kl.isel(transitions=-1).values for kl in found]


def fitted(numbers: Array, kl: Sequence[Array], *, together: bool) -> Law | None:
    """Fit the law, with 95 % intervals over runs; None for fewer than three numbers of leaders.

    Parameters
    ----------
    kl
        For each number of leaders, the KL of some runs.
    together
        Whether run i is of the same target at each number of leaders, so that runs are resampled
        together.
    """
    if len(numbers) < 3:
        return None
    log_kl, weights = np.log([x.mean() for x in kl]), _weights(kl)
    plain, floored = (_fit(numbers, log_kl, weights, floor) for floor in (False, True))
    falls = _squares(plain, numbers, log_kl, weights) - _squares(floored, numbers, log_kl, weights)
    floor = len(numbers) > 3 and bool(falls > chi2.ppf(0.95, 1))
    best, rng = floored if floor else plain, np.random.default_rng(0)
    draws = []
    for _ in range(resamples(400)):
        at = rng.integers(0, len(kl[0]), len(kl[0]))
        picks = [at if together else rng.integers(0, len(x), len(x)) for x in kl]
        means = [x[pick].mean() for x, pick in zip(kl, picks, strict=True)]
        draws.append(_fit(numbers, np.log(means), weights, floor))
    every = np.array([[*one, _needed(one)] for one in (best, *draws)])
    low, high = np.percentile(every[1:], [2.5, 97.5], axis=0, method="inverted_cdf")
    c, exponent, b, needed = (
        Estimate(*map(float, e)) for e in zip(every[0], low, high, strict=True)
    )
    return Law(c, exponent, b, needed, int(numbers[-1]))


def _weights(kl: Sequence[Array]) -> Array:
    """One over the standard errors of log mean KL, pooled over numbers of leaders."""
    relative = [x.std(ddof=1) / x.mean() / np.sqrt(len(x)) for x in kl]
    return np.full(len(kl), 1 / max(float(np.sqrt(np.mean(np.square(relative)))), 1e-6))


def _model(parameters: Array, numbers: Array) -> Array:
    log_c, exponent, floor = parameters
    return np.asarray(np.log(np.exp(log_c) * numbers**-exponent + floor))


def _squares(fit: Array, numbers: Array, log_kl: Array, weights: Array) -> float:
    parameters = np.array([np.log(fit[0]), *fit[1:]])
    return float(np.square(weights * (_model(parameters, numbers) - log_kl)).sum())


def _fit(numbers: Array, log_kl: Array, weights: Array, floor: bool) -> Array:
    """Return c, γ and b."""
    slope, start = np.polyfit(np.log(numbers), log_kl, 1, w=weights)
    if not floor:
        return np.array([np.exp(start), -slope, 0.0])
    least = float(np.exp(log_kl.min()))
    found = least_squares(
        lambda x: weights * (_model(x, numbers) - log_kl),
        [start, max(-slope, 0.1), least / 2],
        bounds=([-np.inf, 0.0, 0.0], [np.inf, 10.0, least]),
    )
    return np.array([np.exp(found.x[0]), *found.x[1:]])


def _needed(fit: Array) -> float:
    """The number of leaders at which the fit comes to `HOPED`."""
    c, exponent, floor = fit
    if floor >= HOPED or exponent <= 0:
        return float("inf")
    return float((c / (HOPED - floor)) ** (1 / exponent))


def theory(dim: int, n_leaders: int) -> float:
    """Return the KL that mean and covariance of so many draws leave, about d(d + 3)/(4|A|)."""
    return dim * (dim + 3) / (4 * n_leaders)


def from_the_answer(tree: xr.DataTree, dim: int, n_leaders: int) -> dict[int, Estimate]:
    """Return transitions → how far q_ℓ has walked from p = q_0; see `spanned`."""
    return _along(tree[answer_label(dim, n_leaders)].to_dataset())


def on_products(tree: xr.DataTree, dim: int) -> dict[int, Estimate]:
    """Return transitions → KL on a product of skewed densities; see `spanned`."""
    return _along(tree[product_label(dim)].to_dataset())


def _along(found: xr.Dataset) -> dict[int, Estimate]:
    every = {int(k): found.sel(transitions=k) for k in found.transitions.values}
    return {
        k: spanned(at.kl.values, at.kl_error.values)
        for k, at in every.items()
        if np.isfinite(at.kl.values).all()
    }


def spanned(kl: Array, errors: Array) -> Estimate:
    """Return the mean of a few runs, and from the lowest to the highest with its own error.

    For runs too few to be resampled.
    """
    low, high = (kl - 1.96 * errors).min(), (kl + 1.96 * errors).max()
    return Estimate(float(kl.mean()), float(low), float(high))
