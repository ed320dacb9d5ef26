"""Uncertainty of summaries over independent trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import numpy as np
from scipy import stats

Array = np.ndarray

_RESAMPLES: ContextVar[int | None] = ContextVar("resamples", default=None)


@dataclass(frozen=True)
class Estimate:
    """A number with a 95 % interval."""

    value: float
    low: float
    high: float


@contextmanager
def resampling(repeats: int) -> Iterator[None]:
    """Let intervals by bootstrap take so many resamples, where their caller names no number.

    For simulations that need many intervals, each of which may be a little rough.
    """
    token = _RESAMPLES.set(repeats)
    try:
        yield
    finally:
        _RESAMPLES.reset(token)


def resamples(default: int = 2000) -> int:
    """Return the number that `resampling` says, or else the default."""
    return _RESAMPLES.get() or default


def bootstrap(
    trials: Array, summary: Callable[[Array], Array], *, repeats: int | None = None, seed: int = 0
) -> tuple[Array, Array, Array]:
    """Return a summary over the first axis and its 95 % percentile interval over trials.

    Parameters
    ----------
    trials
        ``(n_trials, …)``; the rest is resampled together.
    summary
        Maps ``(n_trials, …)`` to an array, such as ``lambda x: x.mean(0)``.
    repeats
        Resamples; default 2000, or what `resampling` says.
    """
    repeats = repeats or resamples()
    rng = np.random.default_rng(seed)
    n = len(trials)
    draws = np.stack([summary(trials[rng.integers(0, n, n)]) for _ in range(repeats)])
    low, high = np.percentile(draws, [2.5, 97.5], axis=0)
    return np.asarray(summary(trials)), low, high


def median(trials: Array) -> Estimate:
    """Return the median over trials, interval by bootstrap."""
    value, low, high = bootstrap(np.asarray(trials), lambda x: np.median(x, axis=0))
    return Estimate(float(value), float(low), float(high))


def mean(trials: Array) -> Estimate:
    """Return the mean over trials, with a Student-t interval."""
    trials = np.asarray(trials, dtype=float)
    centre = float(trials.mean())
    half = float(stats.t.ppf(0.975, len(trials) - 1) * stats.sem(trials))
    return Estimate(centre, centre - half, centre + half)


def share(events: Array) -> Estimate:
    """Return the share of trials with an event, with a Wilson interval."""
    events = np.asarray(events, dtype=bool)
    interval = stats.binomtest(int(events.sum()), len(events)).proportion_ci(0.95, "wilson")
    return Estimate(float(events.mean()), float(interval.low), float(interval.high))
