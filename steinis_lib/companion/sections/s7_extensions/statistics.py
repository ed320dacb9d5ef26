"""Summaries of the variants beyond the paper, beside the methods of other sections, and bars.

`tree` is the result of this section, and `section` that of the section with the same targets,
trials or images. All intervals are 95 %, by bootstrap over repeats, trials or images; the rest is
resampled with them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr

from steinis_lib.companion.bars import Bar
from steinis_lib.companion.intervals import Array, Estimate, bootstrap
from steinis_lib.companion.sections.s2_mixtures import experiment as gmm_estimation
from steinis_lib.companion.sections.s2_mixtures.problem import MIXTURES as KINDS
from steinis_lib.companion.sections.s2_mixtures.statistics import EXPECTATIONS
from steinis_lib.companion.sections.s3_adaptive_is import problem as adaptive_problem
from steinis_lib.companion.sections.s4_rbm import experiment as rbm_partition
from steinis_lib.companion.sections.s5_likelihood import problem as vae_likelihood
from steinis_lib.companion.sections.s7_extensions.images import Hybrid, hybrids
from steinis_lib.companion.sections.s7_extensions.plane import ON_MIXTURES
from steinis_lib.companion.sections.s7_extensions.settings import (
    IMAGE_VARIANTS,
    MIXTURE_SIZE,
    TRUTH,
    end_kind,
    image_label,
    mixture_label,
    rbm_label,
    tuning_label,
    warped_label,
)

WARPED, MIXTURES, IMAGES = "mixture-held-out", "mixture-maps-hais", "flow-bridge"
"""The variants that the bars are about, with `at-modes`; see "Choices" for when they were named."""
HAIS = ("hais-full", "hais-partial")
AT_MODES = {"at-modes": "error", "at-modes-100": "error_100", "at-modes-hais": "error_annealed",
            "at-modes-bridge": "error_bridged"}  # fmt: skip
"""On the RBM: all weighted draws of the mixture, the first 100; and HAIS or a bridge from it."""
WARPED_BARS = {"bar": 0.01, "aim": 0.003}
MIXTURE_BARS = {"expectation": 1.5, "Z": 1.0}
RBM_BARS = {100: 0.1}
IMAGE_BARS = {20: 0.04, 50: 0.05}
"""Hoped for: nats of KL, ratios of MSE, and nats of RMSE at each d."""


def estimate(trials: Array, summary: Callable[[Array], Array]) -> Estimate:
    """Return a summary over the first axis with its bootstrap interval."""
    value, low, high = bootstrap(np.asarray(trials, dtype=float), summary)
    return Estimate(float(value), float(low), float(high))


def average(tree: xr.DataTree, label: str, variable: str) -> Estimate:
    """Return the mean of a variable over the trials of a cell, such as `kl` or `scores`."""
    return estimate(tree[label].to_dataset()[variable].values, lambda x: x.mean(0))


def published(section: xr.DataTree, family: str, n_leaders: int) -> tuple[Estimate, int, Estimate]:
    """Return the smallest mean KL of a run of section 3, at which transition, and the last one."""
    label = adaptive_problem.label(adaptive_problem.MAIN, family, n_leaders)
    found = section[label].to_dataset()
    kl = found.kl_grid.values
    best = int(kl.mean(0).argmin())
    first, last = (estimate(kl[:, i], lambda x: x.mean(0)) for i in (best, -1))
    return first, int(found.checkpoint.values[best]), last


def kl_ratio(tree: xr.DataTree, ours: str, theirs: str) -> Estimate:
    """Return the mean KL of a variant on the warped mixture over that of another one."""
    return estimate(_warped(tree, ours, theirs), lambda x: x[:, 0].mean() / x[:, 1].mean())


def share_of_mixture(tree: xr.DataTree) -> Estimate:
    """How much of the fall of KL, from fixed leaders to `WARPED`, M-PMC's mixture alone makes."""
    kl = _warped(tree, "fixed", "mixture", WARPED)
    return estimate(kl, lambda x: (x[:, 0] - x[:, 1]).mean() / (x[:, 0] - x[:, 2]).mean())


def _warped(tree: xr.DataTree, *variants: str) -> Array:
    return np.stack([tree[warped_label(v)].to_dataset().kl.values for v in variants], -1)


def square_errors(
    tree: xr.DataTree, section: xr.DataTree, mixture: str, method: str, task: str
) -> Array:
    """Return the square errors of a panel of section 2 at |B| = `MIXTURE_SIZE`, ``(trials,)``.

    `method` is a variant, or a method of that section, which is read off at those of our trials
    that it has, the first ones.
    """
    if method in ON_MIXTURES:
        found = tree[mixture_label(mixture, method)].to_dataset()
    else:
        trials = tree[mixture_label(mixture, MIXTURES)].to_dataset().trial.values
        theirs = section[gmm_estimation.label(mixture, method)].to_dataset()
        found = theirs.sel(size=MIXTURE_SIZE, trial=np.intersect1d(trials, theirs.trial))
    if task == "Z":
        return np.asarray((np.exp(found.log_z.values) - 1) ** 2)
    error = found.error.sel(quantity=EXPECTATIONS[task]).transpose("trial", "quantity").values
    return np.asarray((error**2).mean(1))


def mse_ratio(
    tree: xr.DataTree,
    section: xr.DataTree,
    mixture: str,
    method: str,
    others: tuple[str, ...],
    task: str,
) -> Estimate:
    """Return MSE(method) over the smallest MSE among `others`, on the same mixtures, paired."""
    parts = [square_errors(tree, section, mixture, m, task) for m in (method, *others)]
    errors = np.stack([part[: min(map(len, parts))] for part in parts], -1)
    return estimate(errors, lambda x: x[:, 0].mean() / x[:, 1:].mean(0).min())


def rbm_errors(tree: xr.DataTree, section: xr.DataTree, method: str, dim: int) -> Array:
    """Errors of log Ẑ on the same models, ``(trials,)``, in nats.

    `method` is one of `AT_MODES`, or one of section 4, at its last number of transitions.
    """
    ours = tree[rbm_label(dim)].to_dataset()
    if method in AT_MODES:
        return np.asarray(ours[AT_MODES[method]].values)
    label = rbm_partition.label("standard", method, dim)
    error = section[label].to_dataset().error.isel(transitions=-1)
    return np.asarray(error.sel(trial=ours.trial).values)


def rmse(errors: Array) -> Estimate:
    """Return the root mean square over all axes; the first one is resampled."""
    return estimate(errors, lambda x: np.sqrt(np.square(x).mean()))


def rmse_ratio(ours: Array, theirs: Array) -> Estimate:
    """Return RMSE(ours)/RMSE(theirs), on the same models or images, resampled in pairs."""
    squares = [np.square(e).reshape(len(e), -1).mean(1) for e in (ours, theirs)]
    return estimate(np.stack(squares, -1), lambda x: np.sqrt(x[:, 0].mean() / x[:, 1].mean()))


def median_error(errors: Array) -> Estimate:
    """Return the median of absolute errors."""
    return estimate(np.abs(errors), lambda x: np.median(x, axis=0))


def image_errors(tree: xr.DataTree, section: xr.DataTree, method: str, dim: int) -> Array:
    """Return log p̂(x) less this experiment's long run, ``(images, repeats)``, in nats.

    `method` is a variant, or one of section 5 from the prior, at its last number of transitions.
    """
    truth = tree[image_label(TRUTH, dim)].to_dataset().log_z.isel(repeat=0, drop=True)
    if method in IMAGE_VARIANTS:
        found = tree[image_label(method, dim)].to_dataset().log_z
    else:
        label = vae_likelihood.label("prior", method, dim)
        found = section[label].to_dataset().log_z.isel(transitions=[-1])
    return np.asarray((found.sel(trial=truth.trial) - truth).transpose("trial", ...).values)


def truth_agreement(tree: xr.DataTree, section: xr.DataTree, dim: int) -> Array:
    """This experiment's long runs less those of section 5, in standard errors, ``(images,)``."""
    ours = tree[image_label(TRUTH, dim)].to_dataset().isel(repeat=0)
    theirs = section[vae_likelihood.truth_label(dim)].to_dataset().sel(trial=ours.trial)
    sigma = np.hypot(ours.standard_error.values, theirs.standard_error.values)
    return np.asarray((ours.log_z.values - theirs.log_z.values) / sigma)


def hybrid_of(tree: xr.DataTree, method: str, dim: int) -> Hybrid:
    """Return the candidate that the pilots chose for `flow-hais` or `flow-bridge`."""
    kind = end_kind(method)
    merit = tree[tuning_label(kind, dim)].to_dataset().merit.values[0]
    return hybrids(kind, dim)[int(merit.argmax())]


def bars(
    tree: xr.DataTree, mixtures: xr.DataTree, rbm: xr.DataTree, images: xr.DataTree,
    image_budget: int, rbm_budget: int,
) -> list[Bar]:  # fmt: skip
    """Return the bars whose problem was run; budgets are evaluations for one problem."""
    kl = average(tree, warped_label(WARPED), "kl")
    found = [Bar(f"warped mixture: KL at most {t:g} ({n})", t, kl) for n, t in WARPED_BARS.items()]
    for name in KINDS:
        t = MIXTURE_BARS["expectation"]
        for task in EXPECTATIONS:
            ratio = mse_ratio(tree, mixtures, name, MIXTURES, ("direct",), task)
            text = f"MSE of {task} at most {t:g} × that of direct draws"
            found.append(Bar(f"{name} mixtures: {text}", t, ratio))
        text = f"{name} mixtures: MSE of Ẑ at most {(t := MIXTURE_BARS['Z']):g} × the better HAIS's"
        found.append(Bar(text, t, mse_ratio(tree, mixtures, name, MIXTURES, HAIS, "Z")))
    for d, t in RBM_BARS.items():
        if rbm_label(d) in tree.children:
            fits = int(tree[rbm_label(d)].to_dataset().evaluations.max()) <= rbm_budget
            text = f"RBM, d = {d}: RMSE at most {t:g} nat, in {rbm_budget:,} evaluations"
            found.append(Bar(text, t, rmse(rbm_errors(tree, rbm, "at-modes", d)), fits))
    for d, t in IMAGE_BARS.items():
        if image_label(IMAGES, d) in tree.children:
            fits = hybrid_of(tree, IMAGES, d).used(image_budget) <= image_budget
            text = f"images, d = {d}: RMSE at most {t:g} nat, in {image_budget:,} evaluations"
            found.append(Bar(text, t, rmse(image_errors(tree, images, IMAGES, d)), fits))
    return found
