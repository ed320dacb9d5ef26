"""The figures of the method page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from examples import method
from examples.foundations import TwoModes, normal
from examples.panels import Drawing, line, note, panels
from steinis_lib.companion.figures import COLOURS, label_ends


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
    tracked = (normal(1.0).log_prob(y.unsqueeze(-1)) - log_det).exp()
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
        x, TwoModes().mixture.log_prob(points).exp(), color=COLOURS["grey"], alpha=0.3
    )
    axes.plot(x, normal(1.0).log_prob(points).exp(), "--", color=COLOURS["orange"])
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
    "one_step": one_step,
    "fold": fold,
    "leaders_and_followers": leaders_and_followers,
    "divergence": divergence,
}
