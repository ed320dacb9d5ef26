"""The small figures on the cards of the landing page, from the ledger and the stored results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from examples.panels import Drawing
from steinis_lib.companion.claims import Finding
from steinis_lib.companion.figures import COLOURS, label_ends
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.method_labels import LABELS
from steinis_lib.companion.sections.s4_rbm import statistics as rbm
from steinis_lib.companion.sections.s6_running_time import statistics as time

SIZE = (3.8, 2.3)
COMPARED = ("steinis", "steinis-wide", "ais", "hais-1l")
TIMED = ("steinis", "ais", "hais-10l")


def small() -> tuple[Figure, Axes]:
    """Return a figure of a card's size with one panel."""
    figure = Figure(figsize=SIZE)
    return figure, figure.subplots()


def robustness(findings: Sequence[Finding]) -> Drawing:
    """A bar for each claim that is reproduced: the share of its readings that agree."""
    shares = sorted(
        np.mean([judged.verdict == "reproduced" for judged in f.readings])
        for f in findings
        if f.verdict == "reproduced"
    )
    figure, axes = small()
    axes.barh(range(len(shares)), [100 * s for s in shares], color=COLOURS["green"])
    axes.set(xlim=(0, 100), xlabel="% of readings that agree", yticks=[])
    axes.set_ylabel("reproduced claims")
    axes.grid(False, axis="y")
    alt = (
        f"A bar for each of {len(shares)} reproduced claims: the share of its readings under which "
        f"it is reproduced, from {shares[0]:.0%} to {shares[-1]:.0%}."
        if shares
        else "No claim is reproduced."
    )
    return figure, alt


def rbm_curves(tree: xr.DataTree) -> Drawing:
    """Errors of log Ẑ against transitions at the largest dimension of section 4."""
    figure, axes = small()
    dim = rbm.dims(tree)[-1]
    ends = []
    for name in COMPARED:
        label, colour, style = LABELS[name]
        k, errors = rbm.errors(tree, "standard", name, dim)
        centre = rbm.rmse(errors)[0]
        axes.plot(k, centre, color=COLOURS[colour], label=label, **style)
        ends.append(f"{label} {centre[-1]:.2g}")
    axes.set(xscale="log", yscale="log", xlabel="transitions", ylabel="RMS error, nats")
    axes.tick_params(which="minor", bottom=False, left=False, labelbottom=False)
    label_ends(axes)
    return figure, (
        f"Root mean square error of log Z of RBMs with d = {dim} against transitions, on log "
        f"scales. At the end, in nats: {'; '.join(ends)}."
    )


def remedies(rows: Sequence[tuple[str, Estimate, bool]]) -> Drawing:
    """Errors of methods, each with a name, an interval, and whether it goes beyond the paper."""
    figure, axes = small()
    for y, (_, error, beyond) in enumerate(reversed(rows)):
        colour = COLOURS["green" if beyond else "blue"]
        axes.plot([error.low, error.high], [y, y], color=colour)
        axes.plot(error.value, y, marker="D" if beyond else "o", color=colour)
    axes.set_yticks(range(len(rows)), [name for name, *_ in reversed(rows)], fontsize="small")
    axes.set(xscale="log", xlabel="RMS error, nats", ylim=(-0.6, len(rows) - 0.4))
    axes.tick_params(which="minor", bottom=False)
    words = "; ".join(f"{name.replace(chr(10), ' ')} {error.value:.2g}" for name, error, _ in rows)
    return figure, f"Root mean square errors in nats, on a logarithmic axis: {words}."


def times(tree: xr.DataTree) -> Drawing:
    """Time of a transition over that of HAIS-1L: ours with interval, and the paper's."""
    figure, axes = small()
    dim = time.dims(tree)[-1]
    words = []
    for y, name in enumerate(reversed(TIMED)):
        ours = time.ratio(tree, name, "hais-1l", dim)
        paper = time.PAPER[name][dim] / time.PAPER["hais-1l"][dim]
        first = y == 0
        axes.plot([ours.low, ours.high], [y, y], color=COLOURS["blue"])
        axes.plot(ours.value, y, "o", color=COLOURS["blue"], label="ours" if first else "_")
        axes.plot(paper, y, "s", mfc="none", color=COLOURS["grey"], label="paper" if first else "_")
        words.append(f"{LABELS[name][0]} {ours.value:.2g}, in the paper {paper:.2g}")
    axes.set_yticks(range(len(TIMED)), [LABELS[name][0] for name in reversed(TIMED)])
    axes.set(xscale="log", xlabel=f"time / that of HAIS-1L, d = {dim}", ylim=(-0.6, 2.6))
    axes.set_xticks([1, 2, 4, 8], ["1", "2", "4", "8"])
    axes.tick_params(which="minor", bottom=False, labelbottom=False)
    axes.legend(loc="upper right", fontsize="small")
    return figure, (
        f"Time of a transition over that of HAIS-1L at d = {dim}: {'; '.join(reversed(words))}."
    )
