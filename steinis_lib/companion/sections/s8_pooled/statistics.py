"""The bars of this section: what was hoped for before the first run, and what came out.

`tree` is the result of this section; `mixtures`, `rbm` and `vae` are those of sections 2, 4 and 5.
"""

from __future__ import annotations

import xarray as xr

from steinis_lib.companion.bars import Bar
from steinis_lib.companion.intervals import mean
from steinis_lib.companion.sections.s2_mixtures.problem import MIXTURES
from steinis_lib.companion.sections.s8_pooled import images, law, machines, plane

IMAGE_BARS = ((20, 40_000, 0.05), (20, 60_000, 0.03), (50, 60_000, 0.3))
"""d, decoder evaluations, and nats of RMSE."""
IMAGE_RIVALS = {"hais-1l-partial": "HAIS-1L with partial refresh", "hais-10l": "HAIS-10L"}
MIXTURE_BAR = 1.2
"""MSE of expectations over that of direct draws."""
BENT_BAR = ANSWER_BAR = 0.003
"""Nats of KL."""


def bars(tree: xr.DataTree, mixtures: xr.DataTree, rbm: xr.DataTree, vae: xr.DataTree) -> list[Bar]:
    """Return the bars whose problem was run."""
    return [
        *image_bars(tree, vae),
        Bar(f"bent mixture: KL at most {BENT_BAR:g}", BENT_BAR, mean(plane.bent_kl(tree))),
        *mixture_bars(tree, mixtures),
        *rbm_bars(tree, rbm),
        *answer_bars(tree),
    ]


def image_bars(tree: xr.DataTree, vae: xr.DataTree) -> list[Bar]:
    """Return the bars on errors of log p(x), and on their ratios at equal evaluations."""
    found, p = [], images.sizes(tree)
    for d, budget, threshold in IMAGE_BARS:
        if d in p.latent_dims:
            runs = [images.ours(tree, vae, d, k) for k in p.image_transitions]
            e = next((e for e in reversed(runs) if e.evaluations <= budget), runs[0])
            text = f"images, d = {d}, {len(e.images)} of them: RMSE at most {threshold:g} nat"
            fits = e.evaluations <= budget
            found.append(Bar(f"{text} in {budget:,} evaluations", threshold, e.rmse(), fits))
    for d in p.latent_dims:
        e = images.ours(tree, vae, d, p.image_transitions[-1])
        for method, name in IMAGE_RIVALS.items():
            other = images.equal_evaluations(e, vae, method, d)
            text = (
                f"images, d = {d}: RMSE below that of {name} "
                f"({e.evaluations:,} against {other.evaluations:,} evaluations)"
            )
            found.append(Bar(text, 1.0, images.rmse_ratio(e, other)))
    return found


def mixture_bars(tree: xr.DataTree, mixtures: xr.DataTree) -> list[Bar]:
    """Return the bars on expectations, the geometric mean over the three panels."""
    return [
        Bar(
            f"{kind} mixtures, |B| = {n:,}: MSE of expectations at most {MIXTURE_BAR:g} × that of "
            "direct draws",
            MIXTURE_BAR,
            plane.mse_ratio(tree, mixtures, kind, "direct", sizes=(n,)),
        )
        for kind in MIXTURES
        for n in plane.SIZES
    ]


def rbm_bars(tree: xr.DataTree, rbm: xr.DataTree) -> list[Bar]:
    """Return the bars from the matched q_0, where section 4 has HAIS from there."""
    found, p = [], images.sizes(tree)
    for d in p.rbm_dims:
        if machines.has(rbm, "matched", "hais-1l", d):
            e = machines.ours(tree, "matched", d, p.rbm_transitions[-1])
            other = machines.theirs(rbm, "matched", "hais-1l", d, e.evaluations)
            text = (
                f"RBM from the matched q0, d = {d}: RMSE at most that of HAIS-1L "
                f"({e.evaluations:,} against {other.evaluations:,} evaluations)"
            )
            found.append(Bar(text, 1.0, machines.rmse_ratio((e, other))))
    return found


def answer_bars(tree: xr.DataTree) -> list[Bar]:
    """Return the bars on starts at the answer, where all transitions were run."""
    found, p = [], images.sizes(tree)
    for d in p.floor_dims:
        along = law.from_the_answer(tree, d, p.answer_leaders[-1])
        if p.answer_transitions[-1] in along:
            text = f"start at the answer, d = {d}, |A| = {p.answer_leaders[-1]:,}: KL at most "
            text += f"{ANSWER_BAR:g} for {p.answer_transitions[-1]:,} transitions"
            worst = max(along.values(), key=lambda e: e.value)
            found.append(Bar(text, ANSWER_BAR, worst))
    return found
