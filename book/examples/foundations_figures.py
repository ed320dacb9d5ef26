"""The figures of the foundations page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from examples import foundations as basics
from examples.panels import Drawing, line, note, panels
from steinis_lib.companion.figures import COLOURS

SIGMAS = (0.6, 0.65, 0.8, 0.9, 1.2, 1.5, 2.0, 3.0)


def importance_sampling() -> Drawing:
    """Variance of Ẑ and ESS against σ, by the law and from runs."""
    figure, (left, right) = panels()
    sigma = np.linspace(0.708, 3.2, 400)
    chi2 = np.array([basics.chi_squared(float(s)) for s in sigma])
    runs = [basics.importance_runs(s) for s in SIGMAS]
    style: Any = {"marker": "o", "linestyle": "none", "color": COLOURS["orange"]}
    left.plot(sigma, chi2, color=COLOURS["blue"])
    left.plot(SIGMAS, [run.scaled_variance for run in runs], **style)
    left.set(yscale="log", ylim=(0.01, 20), title=r"$n\,\mathrm{Var}(\hat Z)/Z^2$")
    right.plot(sigma, 1 / (1 + chi2), color=COLOURS["blue"])
    right.plot(SIGMAS, [run.ess_share for run in runs], **style)
    right.set(ylim=(0, 1.05), title=r"$\mathrm{ESS}/n$")
    for axes in (left, right):
        axes.axvspan(0.4, 0.5**0.5, color=COLOURS["grey"], alpha=0.25, linewidth=0)
        axes.set(xlim=(0.4, 3.2), xlabel=r"$\sigma$ of the proposal")
    note(left, "law", 2.4, 0.4, "blue")
    note(left, "runs", 1.62, 0.13, "orange")
    left.text(0.55, 0.025, "infinite", rotation=90, ha="center", va="center")
    return figure, (
        "Two panels against the proposal's standard deviation sigma. The measured variance and the "
        "measured effective sample size lie on the curves of the chi-square law for sigma from 0.8 "
        "to 3. Below sigma 0.71 the law's variance is infinite, and the measured values are finite."
    )


TRANSITIONS = (3, 10, 30, 100, 300)


def annealing() -> Drawing:
    """Densities along the path, and the gap against the number of transitions."""
    figure, (left, right) = panels()
    x = torch.linspace(-6, 6, 601, dtype=torch.float64)
    betas = (0.0, 0.05, 0.2, 1.0)
    for beta, colour, style in zip(
        betas, ("grey", "green", "purple", "blue"), ("--", "-.", ":", "-"), strict=True
    ):
        left.plot(x, basics.path_density(x, beta), style, color=COLOURS[colour], label=f"{beta:g}")
    left.legend(title=r"$\beta$", loc="upper right", handlelength=2.2)
    left.set(xlabel="$y$", title=r"$p_\beta(y)$", ylim=(0, 0.47), xlim=(-6, 6))
    ideal = np.array([TRANSITIONS[0], TRANSITIONS[-1]])
    for leapfrogs, counts, colour, style in (
        (1, TRANSITIONS, "orange", "o--"),
        (5, TRANSITIONS[:4], "green", "s-."),
    ):
        gaps = [basics.line_gap(k, leapfrogs) for k in counts]
        right.plot(counts, gaps, style, color=COLOURS[colour])
    right.plot(ideal, basics.jeffreys() / (2 * ideal), color=COLOURS["blue"])
    right.set(xscale="log", yscale="log", xlabel="transitions $K$", ylim=(0.001, 2))
    right.set(title=r"$\log Z-\mathrm{E}[\log w]$, nats")
    note(right, "$L=1$", 60, 0.3, "orange")
    note(right, "$L=5$", 33, 0.06, "green")
    note(right, "$J/2K$", 10, 0.022, "blue", "right")
    return figure, (
        "Left: densities on the path from a wide Gaussian to a density with two modes, for beta 0, "
        "0.05, 0.2 and 1. Right: the gap between log Z and the mean log-weight against the number "
        "of transitions, on log axes. With one leapfrog step it lies far above the line J over 2K; "
        "with five it comes close to the line."
    )


def leapfrog() -> Drawing:
    """Orbits in the plane of position and velocity, and the energy error against ε."""
    figure, (left, right) = panels()
    angle = np.linspace(0, 2 * np.pi, 200)
    left.plot(np.cos(angle), np.sin(angle), color=COLOURS["grey"], linewidth=1)
    for epsilon, n, colour, marker in (
        (0.3, 20, "blue", "o"),
        (1.2, 60, "orange", "s"),
        (2.05, 6, "red", "^"),
    ):
        x, v = basics.orbit(epsilon, n)
        left.plot(x, v, marker, color=COLOURS[colour], markersize=4)
    left.set(xlabel="position $y$", ylabel="velocity $v$", xlim=(-2.3, 2.3), ylim=(-1.9, 1.9))
    left.set_aspect("equal")
    note(left, r"$\epsilon=0.3$", 0.7, 1.3, "blue")
    note(left, r"$1.2$", 0.0, 0.35, "orange", "center")
    note(left, r"$2.05$", 1.75, -0.75, "red", "center")
    epsilons = np.array([0.1, 0.2, 0.4, 0.8, 1.6, 1.9])
    right.plot(epsilons, epsilons**2 / 8, color=COLOURS["blue"])
    errors = [basics.energy_error(float(e)) for e in epsilons]
    right.plot(epsilons, errors, "o", color=COLOURS["orange"])
    right.axvline(2, color=COLOURS["red"], linestyle="--")
    right.set(xscale="log", yscale="log", xlabel=r"$\epsilon$", title=r"largest $|H-H_0|$")
    note(right, r"$\epsilon^2/8$", 0.22, 0.014, "blue", "right")
    note(right, "unstable", 1.85, 0.0025, "red", "right")
    return figure, (
        "Left: leapfrog orbits on a standard normal density. With step 0.3 they lie close to a "
        "circle, with step 1.2 on an ellipse, with step 2.05 they move outwards. Right: the "
        "largest error of the energy against the step, on log axes; it follows epsilon squared "
        "over 8 up to the limit of stability at 2."
    )


def refresh() -> Drawing:
    """Traces and mean squared displacement with full and partial refresh."""
    figure, (left, right) = panels()
    lags = np.unique(np.geomspace(1, 300, 25).astype(int))
    for gamma, colour, style in (
        (1.0, "orange", "--"),
        (basics.half_of_variance(0.5), "blue", "-"),
    ):
        positions = basics.walk(gamma)
        left.plot(positions[:201, 4], style, color=COLOURS[colour])
        squares = [basics.squared_displacement(positions, int(lag)) for lag in lags]
        right.plot(lags, squares, style, color=COLOURS[colour])
    left.set(xlabel="transition", title="position of one particle", ylim=(-16, 16))
    right.axhline(2 * basics.WIDTH**2, color=COLOURS["grey"], linewidth=1)
    right.set(xscale="log", yscale="log", xlabel="transitions between", ylim=(0.2, 100))
    right.set(title="mean squared displacement")
    note(right, "full", 20, 1.7, "orange")
    note(right, "partial", 2.2, 6.5, "blue", "right")
    return figure, (
        "Left: the position of one particle over 200 transitions; with partial refresh it crosses "
        "the density many times, with full refresh it wanders slowly. Right: mean squared "
        "displacement against the number of transitions, on log axes; with partial refresh it "
        "reaches its limit about ten times sooner."
    )


HAIS_METHODS = (
    ("HAIS-1L, full refresh", 1, 1.0, "orange", "o--"),
    ("HAIS-1L, partial refresh", 1, basics.half_of_variance(0.3), "blue", "s-"),
    ("HAIS-5L, full refresh", 5, 1.0, "green", "^-."),
)
SCORES = (30, 100, 300)


def hais() -> Drawing:
    """The gap against the number of scores for three kinds of HAIS."""
    figure, (axes,) = panels(1, 6.0)
    for label, leapfrogs, gamma, colour, style in HAIS_METHODS:
        gaps = [
            basics.annealed_gap(scores // leapfrogs, dim=10, n_leapfrog=leapfrogs, refresh=gamma)
            for scores in SCORES
        ]
        line(axes, SCORES, gaps, label, colour, style)
    axes.set(xscale="log", yscale="log", ylim=(0.3, 30), xlabel="scores for each particle")
    axes.set(title=r"$\log Z-\mathrm{E}[\log w]$, nats", xlim=(27, 340))
    axes.set_xticks(SCORES, [str(scores) for scores in SCORES])
    axes.minorticks_off()
    axes.legend(loc="upper right")
    return figure, (
        "The gap between log Z and the mean log-weight against the number of scores, in ten "
        "dimensions, on log axes. HAIS with one leapfrog step and full refresh has the largest gap "
        "at every number of scores; partial refresh and five leapfrog steps are close together."
    )


BOUND_TRANSITIONS = (3, 10, 30, 100)


def bounds() -> Drawing:
    """Lower and upper bounds of log Z against the number of transitions."""
    figure, (axes,) = panels(1, 6.0)
    for side, colour, style in (("upper", "orange", "s--"), ("lower", "blue", "o-")):
        values: list[Tensor] = [getattr(basics.bound_runs(k), side) for k in BOUND_TRANSITIONS]
        low, high = ([float(v.quantile(q)) for v in values] for q in (0.1, 0.9))
        means = [float(v.mean()) for v in values]
        axes.fill_between(
            BOUND_TRANSITIONS, low, high, color=COLOURS[colour], alpha=0.2, linewidth=0
        )
        line(axes, BOUND_TRANSITIONS, means, side, colour, style)
    axes.axhline(basics.LOG_Z, color=COLOURS["grey"], linestyle=":")
    axes.set(xscale="log", xlabel="transitions $K$", title=r"bounds of $\log Z$, nats")
    note(axes, r"$\log Z$", 3.1, 2.1, "grey")
    note(axes, "upper", 4.5, 5.2, "orange")
    note(axes, "lower", 4.5, -12, "blue")
    return figure, (
        "Bounds of log Z against the number of transitions. The lower bound rises and the upper "
        "bound falls towards the true value 1; bands hold four fifths of the runs."
    )


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "importance_sampling": importance_sampling,
    "annealing": annealing,
    "leapfrog": leapfrog,
    "refresh": refresh,
    "hais": hais,
    "bounds": bounds,
}
