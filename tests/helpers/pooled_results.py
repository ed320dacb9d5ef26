"""Made-up results of SteinIS with a pool, whose errors and laws are known."""

import json

import numpy as np
import xarray as xr

from steinis_lib.companion import results
from steinis_lib.companion.runner.experiment import Cell
from steinis_lib.companion.sections.s8_pooled.experiment import EXPERIMENT, FEW
from steinis_lib.companion.sections.s8_pooled.settings import Pooled

QUANTITIES = ["x1", "x2", "x1²", "x2²", "cos1", "cos2"]


def tree(p: Pooled, truths, image=0.1, rbm=0.1, mixture=1.0, kl=0.002, law=(1.0, 0.7), seed=0):
    """A result with the cells, sizes and missing numbers of a run.

    Parameters
    ----------
    truths
        d → log p(x) of the images.
    image, rbm
        Standard deviation of errors of log Ẑ; of images at the fewest transitions, with all
        followers. It falls as one over the number of transitions, and of followers as one over
        its root.
    mixture
        Errors of expectations from n followers are so many times n^(-1/2).
    kl
        On the bent mixture after the last transition, and at the answer.
    law
        c and γ of the floor law.
    """
    noise = np.random.default_rng(seed)
    found = {}
    for cell in EXPERIMENT.cells(p):
        kind, *words = cell.label.split("-")
        if kind in ("images", "without"):
            d = int(words[-1])
            n = cell.n_trials
            found[cell.label] = _images(p, cell, truths[d][:n], image, noise)
        elif kind == "rbm":
            found[cell.label] = _machines(p, cell, rbm, noise)
        elif kind == "mixtures":
            found[cell.label] = _mixtures(p, cell, mixture, kl, noise)
        else:
            found[cell.label] = _plane(p, cell, kl, law, noise)
    made = xr.DataTree.from_dict(found)
    made.attrs["parameters"] = p.model_dump_json()
    chunk = results.provenance(0.0) | {"run": "2026-01-01T00:00:00.000+00:00"}
    made.attrs["provenance"] = json.dumps(results.parts([chunk]))
    return made


def _images(p, cell: Cell, truth, scale, noise):
    n, sizes = cell.n_trials, np.array(p.image_followers)
    numbers = [k for k in p.image_transitions if cell.label[0] == "i" or k < p.long_from]
    unit = noise.standard_normal((n, len(numbers), 1)) * np.ones(len(sizes))
    k = np.array(numbers)[:, None]
    factor = scale * (numbers[0] / k) * np.sqrt(sizes[-1] / sizes)
    log_z = truth[:, None, None] + factor * unit
    late = np.array(numbers) >= p.long_from
    log_z[p.n_images_long :, late] = np.nan
    dims = ("trial", "transitions")
    there = np.where(np.isnan(log_z[..., 0]), np.nan, 1.0)
    return xr.Dataset(
        {
            "log_z": ((*dims, "size"), log_z),
            "mean_log_w": (dims, truth[:, None] - 0.5 * there),
            "ess": (dims, 0.5 * there),
            "pareto_k": (dims, 0.1 * there),
            "scores": (dims, there * numbers * p.leaders_per_step),
            "seconds": (dims, there * numbers),
        },
        coords={"trial": range(n), "transitions": numbers, "size": sizes},
    )


def _machines(p, cell, scale, noise):
    n, numbers = cell.n_trials, list(p.rbm_transitions)
    step = max(p.leaders_per_step, int(cell.label.split("-")[-1]) + 3)
    error = scale * noise.standard_normal((n, len(numbers)))
    dims = ("trial", "transitions")
    scores = np.ones((n, 1), dtype=int) * np.array(numbers) * step
    return xr.Dataset(
        {"error": (dims, error), "scores": (dims, scores)},
        coords={"trial": range(n), "transitions": numbers, "size": [p.rbm_followers]},
    )


def _mixtures(p, cell, scale, kl, noise):
    n, numbers, sizes = cell.n_trials, list(p.mixture_transitions), [FEW, p.mixture_followers]
    dims = ("trial", "transitions")
    shape = (n, len(numbers), len(QUANTITIES))
    unit = noise.standard_normal(shape)
    log_z = np.log1p(0.1 * scale * unit[..., :1] / np.sqrt(sizes))
    return xr.Dataset(
        {
            "error": ((*dims, "quantity"), scale * unit / np.sqrt(sizes[0])),
            "error_all": ((*dims, "quantity"), scale * unit / np.sqrt(sizes[1])),
            "log_z": ((*dims, "size"), log_z),
            "kl": (dims, np.full(shape[:2], kl)),
        },
        coords={
            "trial": range(n), "transitions": numbers, "size": sizes, "quantity": QUANTITIES,
        },
    )  # fmt: skip


def _plane(p, cell, kl, law, noise):
    kind, *words = cell.label.split("-")
    n_leaders, numbers = p.n_leaders, list(p.answer_transitions[:2])
    level = kl
    if kind == "floor":
        n_leaders, numbers = int(words[-1]), list(p.plane_transitions[:2])
        level = law[0] * n_leaders ** -law[1]
    elif kind == "bent":
        numbers = list(p.plane_transitions)
    elif kind == "answer":
        numbers = list(p.answer_transitions)
    n, dims = cell.n_trials, ("trial", "transitions")
    spread = 1 + 0.02 * noise.standard_normal((n, len(numbers)))
    values = level * spread * (numbers[-1] / np.array(numbers)) ** (kind != "answer")
    if kind == "answer" and int(words[0]) > 2:
        values[:, -1] = np.nan
    return xr.Dataset(
        {"kl": (dims, values), "kl_error": (dims, 0.05 * values)},
        coords={"trial": range(n), "transitions": numbers},
    )
