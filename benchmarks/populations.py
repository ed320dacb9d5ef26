"""Made-up populations of trials, for which a claim is as true, or as false, as wanted.

A population is the stored trials, changed by a *make*: a function of the cells that the claim's
statistic reads, and of a number. Zero leaves the data as they are (but for `with_rises`), and the
statistic of the whole population rises or falls steadily with the number. All makes keep the
scatter of trials about their centre, or scale it with the centre where it goes with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

import numpy as np
import xarray as xr

from steinis_lib.companion.sections.s5_likelihood import statistics as likelihood
from steinis_lib.companion.sections.s6_running_time import statistics as times

Cells = dict[str, xr.Dataset]
"""Label → a cell's result, trials along "trial"."""
Make = Callable[[xr.DataTree, float], Cells]


@dataclass(frozen=True)
class Population:
    """How data are made for a claim.

    Parameters
    ----------
    make
        The cells that are changed, from a result and a number.
    how
        What is done to the stored data, in words.
    apart
        Trials of different cells have nothing in common. Otherwise trial i is the same problem, or
        run, in all cells.
    """

    make: Make
    how: str
    apart: bool = False

    def of(self, tree: xr.DataTree, amount: float) -> xr.DataTree:
        """Return a whole result with the changed cells in it."""
        groups = {label: node.to_dataset() for label, node in tree.children.items()}
        return tree_of(groups | self.make(tree, amount), tree)


def tree_of(groups: Mapping[str, xr.Dataset], like: xr.DataTree) -> xr.DataTree:
    """Return cells as a result with the attributes of another."""
    tree = xr.DataTree.from_dict(dict(groups))
    tree.attrs.update(like.attrs)
    return tree


def _matching(tree: xr.DataTree, of: str) -> Iterator[tuple[str, xr.Dataset]]:
    """The cells whose label is `of`, in which * stands for anything."""
    for label, node in tree.children.items():
        if fnmatchcase(label, of):
            yield label, node.to_dataset()


# Section 1


def steeper(tree: xr.DataTree, amount: float, *, variable: str) -> Cells:
    """Multiply the logarithms of curves, so that they fall so many more decades."""
    power = np.exp(amount)
    return {
        label: group.assign({variable: np.sign(group[variable]) * abs(group[variable]) ** power})
        for label, group in _matching(tree, "*")
    }


def farther_from_law(tree: xr.DataTree, amount: float) -> Cells:
    """Multiply the difference between dKL/dt and -KSD²."""
    return {
        label: group.assign(kl_rate=-group.ksd2 + np.exp(amount) * (group.kl_rate + group.ksd2))
        for label, group in _matching(tree, "*")
    }


def with_rises(tree: xr.DataTree, amount: float, *, tolerance: float) -> Cells:
    """Let KL rise at its end in so large a share of trials, and nowhere in the others.

    Those trials have it in which KL rises most in the stored data.
    """
    found = {}
    for label, group in _matching(tree, "*"):
        curve = group.kl.values
        lowest = np.minimum.accumulate(curve, axis=1)
        first = np.argsort(-((curve - lowest) / abs(lowest)).max(1), kind="stable")
        rising = first[: round(float(np.clip(amount, 0, 1)) * len(curve))]
        before = lowest[rising, -2]
        made = lowest.copy()
        made[rising, -1] = before + 2 * tolerance * abs(before)
        found[label] = group.assign(kl=(("trial", "time"), made))
    return found


def scaled_z(tree: xr.DataTree, amount: float) -> Cells:
    """Multiply Ẑ in all trials."""
    return {
        label: group.assign(log_z=group.log_z + amount) for label, group in _matching(tree, "*")
    }


def other_order(tree: xr.DataTree, amount: float) -> Cells:
    """Multiply errors by a power of ε."""
    return {
        label: group.assign(error=group.error * (group.epsilon / group.epsilon.max()) ** amount)
        for label, group in _matching(tree, "*")
    }


def other_told_errors(tree: xr.DataTree, amount: float) -> Cells:
    """Multiply the standard errors that estimates come with."""
    return {
        label: group.assign(log_z_se=group.log_z_se * np.exp(amount))
        for label, group in _matching(tree, "*")
    }


# Section 2


def _with_errors(group: xr.Dataset, factor: xr.DataArray | float) -> xr.Dataset:
    """Multiply all errors, and Ẑ's distance from 1, of which statistics take the square."""
    made = {name: group[name] * factor for name in ("error", "error_unweighted") if name in group}
    made["log_z"] = np.log1p(abs(np.expm1(group.log_z)) * factor)
    dims = {name: group[name].dims for name in made}
    return group.assign({name: values.transpose(*dims[name]) for name, values in made.items()})


def steeper_in_size(tree: xr.DataTree, amount: float) -> Cells:
    """Multiply errors by a power of the sample size, so that the slope of log MSE is another."""
    found = {}
    for label, group in _matching(tree, "*"):
        size = group["size"].astype(float)
        found[label] = _with_errors(group, (size / np.exp(np.log(size).mean())) ** (amount / 2))
    return found


def larger_mse(tree: xr.DataTree, amount: float, *, of: str) -> Cells:
    """Multiply the errors of some methods."""
    return {
        label: _with_errors(group, float(np.exp(amount / 2)))
        for label, group in _matching(tree, of)
    }


# Section 3


def larger_kl(tree: xr.DataTree, amount: float, *, of: str, variable: str = "kl") -> Cells:
    """Multiply KL in all runs, or placements of components."""
    return {
        label: group.assign({variable: group[variable] * np.exp(amount)})
        for label, group in _matching(tree, of)
    }


def larger_kl_after(tree: xr.DataTree, amount: float) -> Cells:
    """Multiply KL after the start of a refinement."""
    return {
        label: group.assign(kl=group.kl.where(group.checkpoint == 0, group.kl * np.exp(amount)))
        for label, group in _matching(tree, "*")
        if "candidate" not in group.dims
    }


# Section 4


def larger_errors(tree: xr.DataTree, amount: float, *, of: str) -> Cells:
    """Multiply the errors of some methods, at all d."""
    return {
        label: group.assign(error=group.error * np.exp(amount))
        for label, group in _matching(tree, of)
    }


# Section 5


def _mean_error(tree: xr.DataTree, label: str, group: xr.Dataset) -> xr.DataArray:
    """The mean over images of the errors of log p̂(x), for each number of transitions."""
    exact = likelihood.truth(tree, int(label.rpartition("-")[2])).log_z
    return (group.log_z - exact.sel(trial=group.trial)).mean("trial")


def _away(tree: xr.DataTree, of: str, nats: float) -> Cells:
    """Move the errors of some methods away from zero, those of all images in one direction."""
    return {
        label: group.assign(
            log_z=group.log_z + nats * np.sign(_mean_error(tree, label, group)).astype(float)
        )
        for label, group in _matching(tree, of)
    }


def behind(tree: xr.DataTree, amount: float, *, ours: str, theirs: str) -> Cells:
    """Move the errors of one method away from zero; of the other, if the number is negative."""
    return _away(tree, theirs, amount) if amount > 0 else _away(tree, ours, -amount)


def gained(tree: xr.DataTree, amount: float, *, since: int, of: str = "prior-*") -> Cells:
    """Move the errors after `since` transitions away from zero; the last ones, if negative."""
    moved = _away(tree, of, abs(amount))
    found = {}
    for label, group in _matching(tree, of):
        at = since if amount > 0 else group.transitions.values[-1]
        kept = group.transitions != at
        found[label] = group.assign(log_z=group.log_z.where(kept, moved[label].log_z))
    return found


def larger_mean_error(tree: xr.DataTree, amount: float, *, of: str = "prior-*") -> Cells:
    """Multiply the mean error over images, and leave differences between images as they are."""
    return {
        label: group.assign(log_z=group.log_z + np.expm1(amount) * _mean_error(tree, label, group))
        for label, group in _matching(tree, of)
    }


# Section 6


def slower(tree: xr.DataTree, amount: float, *, method: str) -> Cells:
    """Multiply the seconds of a method, at all d."""
    return {label: _slowed(group, method, amount) for label, group in _matching(tree, "table-*")}


def _slowed(group: xr.Dataset, method: str, log_factor: float) -> xr.Dataset:
    factor = xr.where(group.method == method, np.exp(log_factor), 1.0)
    return group.assign(seconds=(group.seconds * factor).transpose(*group.seconds.dims))


def farther_from_paper(tree: xr.DataTree, amount: float) -> Cells:
    """Stretch the logs of all ratios to HAIS-1L about the paper's; their scatter stays."""
    found = {}
    for label, group in _matching(tree, "table-*"):
        dim = int(label.rpartition("-")[2])
        for method in ("steinis", "hais-10l", "ais"):
            paper = times.PAPER[method][dim] / times.PAPER["hais-1l"][dim]
            centre = float(np.median(np.log(times.ratios(tree, method, "hais-1l", dim) / paper)))
            group = _slowed(group, method, amount * centre)
        found[label] = group
    return found


def farther_from_one(tree: xr.DataTree, amount: float) -> Cells:
    """Stretch the logs of the ratios of SteinIS to HAIS-1L about 0; their scatter stays."""
    found = {}
    for label, group in _matching(tree, "table-*"):
        logs = np.log(times.ratios(tree, "steinis", "hais-1l", int(label.rpartition("-")[2])))
        found[label] = _slowed(group, "steinis", amount * float(np.median(logs)))
    return found


def faster_growth(tree: xr.DataTree, amount: float) -> Cells:
    """Multiply seconds by a power of the size, for all that is varied."""
    return {
        label: group.assign(
            seconds=(group.seconds * (group["size"].astype(float) / group["size"].max()) ** amount)
        )
        for label, group in _matching(tree, "growth-*")
    }


RISES = "KL rises at the end of so many trials, and falls in the others"
SCALED = "the errors of {} times a factor"
MOVED = "the errors of one of both moved away from zero"

POPULATIONS: dict[str, Population | None] = {
    "kl-exponential-steinis": Population(
        partial(steeper, variable="kl"), "the logarithms of curves times a factor"
    ),
    "kl-exponential-svgd": Population(
        partial(steeper, variable="kl"), "the logarithms of curves times a factor"
    ),
    "ksd-exponential-steinis": Population(
        partial(steeper, variable="ksd2_leaders"), "the logarithms of curves times a factor"
    ),
    "ksd-exponential-svgd": Population(
        partial(steeper, variable="ksd2_leaders"), "the logarithms of curves times a factor"
    ),
    "kl-rate-is-ksd": Population(farther_from_law, "dKL/dt + KSD² times a factor"),
    "kl-monotone-mean-field": Population(partial(with_rises, tolerance=1e-3), RISES),
    "kl-monotone-followers": Population(partial(with_rises, tolerance=1e-3), RISES),
    "z-unbiased": Population(scaled_z, "Ẑ times a factor"),
    "determinant-order": Population(other_order, "errors times a power of ε"),
    "continuing-is-free": None,
    "ess-stopping": Population(other_told_errors, "told standard errors times a factor"),
    "mse-rate": Population(steeper_in_size, "errors times a power of the sample size"),
    "steinis-near-direct": Population(
        partial(larger_mse, of="*-steinis*"), SCALED.format("SteinIS")
    ),
    "svgd-near-steinis": Population(partial(larger_mse, of="*-svgd*"), SCALED.format("SVGD")),
    "path-integration-worse": Population(
        partial(larger_mse, of="*-svgd*"), SCALED.format("path integration")
    ),
    "warped-kl": Population(
        partial(larger_kl, of="main-steinis*", variable="kl_grid"), "KL times a factor", apart=True
    ),
    "adaptive-is-kl": Population(partial(larger_kl, of="*"), "KL times a factor", apart=True),
    "adaptive-is-order": Population(
        partial(larger_kl, of="main-steinis*", variable="kl_grid"),
        "KL of SteinIS times a factor",
        apart=True,
    ),
    "mixtures-cannot": Population(partial(larger_kl, of="*"), "KL times a factor", apart=True),
    "refine-adaptive-is": Population(
        larger_kl_after, "KL after refinement times a factor", apart=True
    ),
    "rbm-steinis-hais": Population(
        partial(larger_errors, of="*-steinis*"), SCALED.format("SteinIS")
    ),
    "rbm-across-d": Population(partial(larger_errors, of="*-steinis*"), SCALED.format("SteinIS")),
    "rbm-ais-steinis": Population(partial(larger_errors, of="*-ais*"), SCALED.format("AIS")),
    "rbm-ais-hais": Population(partial(larger_errors, of="*-ais*"), SCALED.format("AIS")),
    "vae-steinis-hais": Population(
        partial(behind, ours="prior-steinis*", theirs="prior-hais-1l*"), MOVED
    ),
    "vae-hais-ten": Population(
        partial(behind, ours="prior-hais-10l*", theirs="prior-steinis*"), MOVED
    ),
    "vae-more-transitions": Population(
        partial(gained, since=300), "the errors after 300 or 1000 transitions moved away from zero"
    ),
    "vae-performs-well": Population(larger_mean_error, "the mean error times a factor"),
    "vae-hais-ten-slower": Population(
        partial(slower, method="hais-10l"), "the seconds of HAIS-10L times a factor", apart=True
    ),
    "time-table": Population(
        farther_from_paper, "the logarithms of ratios stretched about the paper's", apart=True
    ),
    "time-comparable": Population(
        farther_from_one, "the logarithms of ratios stretched about 0", apart=True
    ),
    "cost-formula": Population(faster_growth, "seconds times a power of the size", apart=True),
}
"""Claim id → how data are made for it; None for statistics without randomness."""
