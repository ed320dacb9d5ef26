"""Draw the figures of the foundations and method pages, as SVG that follows light and dark mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import steinis_lib
from examples import foundations as basics
from examples import method
from steinis_lib.companion.figures import COLOURS, label_ends, svg, use_style
from steinis_lib.core.files import replacing

Drawing = tuple[Figure, str]
"""A figure, and what it shows in words."""


def panels(n: int = 2, width: float = 7.0) -> tuple[Figure, list[Axes]]:
    """Return a figure with n panels beside each other."""
    figure = Figure(figsize=(width, 3.2))
    return figure, list(figure.subplots(1, n, squeeze=False)[0])


def line(axes: Axes, x: Any, y: Any, label: str, colour: str, style: str = "-") -> None:
    """Draw a curve, to be labelled at its right end."""
    axes.plot(x, y, style, color=COLOURS[colour], label=label)


def note(axes: Axes, text: str, x: float, y: float, colour: str, align: str = "left") -> None:
    """Write a text in data coordinates, in the colour of what it names."""
    axes.text(x, y, text, color=COLOURS[colour], ha=align, va="center")


# ---------------------------------------------------------------- Foundations

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
        gaps = [basics.line_run(k, leapfrogs).gap for k in counts]
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
            basics.annealed_run(
                scores // leapfrogs, dim=10, n_leapfrog=leapfrogs, refresh=gamma
            ).gap
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


# ---------------------------------------------------------------- Method


def one_step() -> Drawing:
    """The field of one leader, its two terms, and maps of three steps."""
    figure, (left, right) = panels()
    y = torch.linspace(-2.5, 3.5, 400, dtype=torch.float64)
    phi, _ = method.field(y)
    kernel = (-(y - 1).square()).exp()
    left.plot(y, -kernel, "--", color=COLOURS["orange"])
    left.plot(y, 2 * (y - 1) * kernel, "-.", color=COLOURS["green"])
    left.plot(y, phi, color=COLOURS["blue"])
    left.plot([0], [float(method.worked_step().phi)], "o", color=COLOURS["blue"])
    left.plot([1], [0], "^", color=COLOURS["grey"], markersize=8, clip_on=False)
    left.set(xlabel="$y$", title=r"field $\phi(y)$", ylim=(-1.6, 1.05))
    note(left, "attracts", 1.55, -0.85, "orange")
    note(left, "repels", 2.25, 0.72, "green")
    note(left, r"$\phi$", -0.2, -1.15, "blue", "right")
    note(left, "leader", 0.9, 0.2, "grey", "right")
    for epsilon, colour, style in ((0.1, "grey", ":"), (0.665, "blue", "-"), (1.2, "red", "--")):
        right.plot(y, y + epsilon * phi, style, color=COLOURS[colour])
    right.set(xlabel="$y$", title=r"map $T(y)=y+\epsilon\,\phi(y)$", xlim=(-2, 2), ylim=(-2.2, 2))
    note(right, r"$\epsilon=0.1$", -0.2, 0.35, "grey", "right")
    note(right, "$0.665$", -1.75, -0.75, "blue", "left")
    note(right, "$1.2$, folds", 0.3, -1.85, "red", "center")
    return figure, (
        "Left: the field of one leader at 1, which is the sum of an attracting and a repelling "
        "term; at 0 it is -1.10. Right: the map for three steps. It rises everywhere for 0.1, is "
        "flat at one point for 0.665, and falls between two points for 1.2: there it folds."
    )


def fold() -> Drawing:
    """The tracked density and the true one after a step that folds."""
    figure, (axes,) = panels(1, 6.0)
    y = torch.linspace(-4, 4, 4001, dtype=torch.float64)
    moved, log_det, positive = method.one_leader(1.2).with_log_det(y.unsqueeze(-1))
    tracked = (basics.normal(1.0).log_prob(y.unsqueeze(-1)) - log_det).exp()
    turns = torch.nonzero(positive.diff()).flatten().tolist()
    edges = [0, *(turn + 1 for turn in turns), len(y)]
    branches = [
        (moved[first:last, 0].numpy(), tracked[first:last].numpy())
        for first, last in zip(edges, edges[1:], strict=False)
    ]
    z = np.linspace(-3, 3, 1500)
    total = np.zeros_like(z)
    for (ends, density), style in zip(branches, ("--", ":", "-."), strict=True):
        order = np.argsort(ends)
        total += np.interp(z, ends[order], density[order], left=0, right=0)
        axes.plot(ends, density, style, color=COLOURS["orange"])
    axes.plot(z, total, color=COLOURS["blue"], linewidth=1.2)
    axes.set(xlabel="$z$", title="density after the step", xlim=(-3, 3), ylim=(0, 3))
    note(axes, "true density: the sum", 0.15, 2.4, "blue")
    note(axes, "tracked: one of three terms", 0.15, 1.9, "orange")
    return figure, (
        "The density after a step of 1.2 with one leader. Where three points are mapped to the "
        "same place, the tracked density takes one of three values, each below the true density, "
        "which is their sum."
    )


def leaders_and_followers() -> Drawing:
    """q_0, q_K and p of a run with 100 leaders, and where the leaders end."""
    figure, (axes,) = panels(1, 6.0)
    run = method.towards_two_modes(100)
    x = torch.linspace(-4.5, 4.5, 500, dtype=torch.float64)
    points = x.unsqueeze(-1)
    axes.fill_between(
        x, basics.TwoModes().mixture.log_prob(points).exp(), color=COLOURS["grey"], alpha=0.3
    )
    axes.plot(x, basics.normal(1.0).log_prob(points).exp(), "--", color=COLOURS["orange"])
    order = run.grid.argsort()
    axes.plot(run.grid[order], run.density[order], color=COLOURS["blue"])
    axes.plot(run.leaders, torch.full_like(run.leaders, -0.025), "|", color=COLOURS["green"])
    axes.set(xlim=(-4, 4), ylim=(-0.05, 0.62), xlabel="$x$", title="density")
    note(axes, "$q_0$", 0.65, 0.37, "orange")
    note(axes, "$q_K$", -2.35, 0.42, "blue", "right")
    note(axes, "$p$", 1.72, 0.28, "grey")
    note(axes, "leaders", 3.1, -0.025, "green")
    return figure, (
        "A narrow Gaussian q0 is carried to a density with two modes by 200 maps that 100 leaders "
        "build. The followers' density q_K has both modes and follows p, with ripples."
    )


COUNTS: Sequence[tuple[int, str, str]] = (
    (10, "red", ":"),
    (25, "orange", "--"),
    (100, "blue", "-."),
)


def divergence() -> Drawing:
    """KL of the followers' law against time, from afar and from the answer."""
    figure, (left, right) = panels(width=7.4)
    for m, colour, style in COUNTS:
        for axes, run in ((left, method.towards_two_modes(m)), (right, method.from_the_answer(m))):
            line(axes, run.times, run.kl, f"{m}", colour, style)
    limit = method.mean_field()
    line(left, limit.times, limit.kl, "300 at\nquantiles", "grey")
    left.set(yscale="log", ylim=(0.005, 3), xlabel="time $t$", title=r"$q_0=N(0,1)$")
    left.set_ylabel(r"KL$(q_t\,\|\,p)$, nats")
    right.set(ylim=(0, 1.3), xlabel="time $t$", title="$q_0=p$")
    for axes in (left, right):
        axes.set(xlim=(0, 20))
        label_ends(axes)
    return figure, (
        "KL divergence of the followers' law against time for 10, 25 and 100 leaders. Left: from "
        "a narrow Gaussian towards two modes, KL falls first and then rises again; with 10 "
        "leaders it ends above its start, with 300 leaders at quantiles it keeps falling. Right: "
        "started at p, KL leaves zero and rises, the more the fewer leaders."
    )


DRAWINGS: dict[str, Callable[[], Drawing]] = {
    "importance_sampling": importance_sampling,
    "annealing": annealing,
    "leapfrog": leapfrog,
    "refresh": refresh,
    "hais": hais,
    "bounds": bounds,
    "one_step": one_step,
    "fold": fold,
    "leaders_and_followers": leaders_and_followers,
    "divergence": divergence,
}


def draw_all(folder: Path) -> None:
    """Write ``<name>.svg`` for each of `DRAWINGS` into a folder, which takes several seconds."""
    with mpl.rc_context():
        use_style()
        for name, drawing in DRAWINGS.items():
            figure, alt = drawing()
            with replacing(folder / f"{name}.svg") as path:
                path.write_text(svg(figure, alt) + "\n", encoding="utf-8")


def draw_if_needed(folder: Path) -> None:
    """Write all figures, unless each is there and newer than the code that makes it."""
    own, library = Path(__file__).parent, Path(steinis_lib.__file__).parent
    newest = max(path.stat().st_mtime for place in (own, library) for path in place.rglob("*.py"))
    figures = [folder / f"{name}.svg" for name in DRAWINGS]
    if all(path.is_file() and path.stat().st_mtime > newest for path in figures):
        return
    draw_all(folder)
