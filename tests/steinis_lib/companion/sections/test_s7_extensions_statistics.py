from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.sections.s7_extensions import statistics as beyond
from steinis_lib.companion.sections.s7_extensions.images import hybrids
from steinis_lib.companion.sections.s7_extensions.statistics import Bar

QUANTITIES = ["x1", "x2", "x1²", "x2²", "cos1", "cos2"]
TRIALS = 40


def noise(shape, scale, seed):
    return scale * np.random.default_rng(seed).standard_normal(shape)


def plane(scale, seed, trials=range(TRIALS), size=None):
    """Errors and log Ẑ of a scale, of given trials; with a size axis if asked for."""
    error = noise((TRIALS, 6), scale, seed)
    log_z = np.log1p(np.abs(noise(TRIALS, scale / 10, seed + 1)))
    dims, coords = ("trial",), {"trial": list(trials), "quantity": QUANTITIES}
    if size is not None:  # at another size the numbers are absurd
        dims, coords = ("trial", "size"), coords | {"size": [10, size]}
        error = np.stack([np.full_like(error, 99.0), error], 1)
        log_z = np.stack([np.full_like(log_z, 9.0), log_z], 1)
    variables = {"error": ((*dims, "quantity"), error), "log_z": (dims, log_z)}
    return xr.Dataset(variables, coords=coords)


def trees(kl=0.001, ours=1.0, rbm=0.02, cost=100_000, images=0.01):
    """Results of the variants and of the sections, whose errors are of the given sizes."""
    found, mixtures = {}, {}
    for name, factor in {"fixed": 100, "mixture": 10, "mixture-held-out": 1, "reused": 110}.items():
        values = kl * factor * np.linspace(0.9, 1.1, 9)
        found[f"warped-{name}"] = xr.Dataset({"kl": ("trial", values)})
    for mixture in ("easy", "hard"):
        found[f"{mixture}-mixture-maps-hais"] = plane(ours, 3)
        for k, (name, scale) in enumerate((("direct", 1), ("hais-full", 2), ("hais-partial", 1))):
            section = plane(scale, 10 * k + 20, size=100)
            # More trials in the section, and in another order: labels count.
            more = plane(50.0, 7, trials=range(TRIALS, 2 * TRIALS), size=100)
            mixtures[f"{mixture}-{name}"] = xr.concat([more, section], "trial")
    found["rbm-100"] = xr.Dataset(
        {
            "error": ("trial", noise(TRIALS, rbm, 1)),
            "error_100": ("trial", np.full(TRIALS, 3.0)),
            "error_annealed": ("trial", np.full(TRIALS, 4.0)),
            "error_bridged": ("trial", np.full(TRIALS, 5.0)),
            "evaluations": ("trial", np.full(TRIALS, cost)),
        },
        coords={"trial": range(TRIALS)},
    )
    error = np.stack([np.full(TRIALS + 5, 77.0), np.arange(TRIALS + 5.0)], -1)
    section = xr.Dataset(
        {"error": (("trial", "transitions"), error[::-1])},
        coords={"trial": range(TRIALS + 4, -1, -1), "transitions": [50, 1500]},
    )
    truth = np.linspace(-120, -60, 9)
    for d in (20, 50):
        for kind, best in (("hais", 4), ("bridge", 6)):
            merit = np.zeros((1, len(hybrids(kind, d))))
            merit[0, best] = 1.0
            variables = {"merit": (("trial", "candidate"), merit)}
            found[f"vae-tuning-{kind}-{d}"] = xr.Dataset(variables)
        coords = {"trial": range(9), "repeat": range(20)}
        dims = ("trial", "repeat")
        runs = truth[:, None] + noise((9, 20), images, d)
        found[f"vae-flow-bridge-{d}"] = xr.Dataset({"log_z": (dims, runs)}, coords=coords)
        found[f"vae-truth-{d}"] = xr.Dataset(
            {"log_z": (dims, truth[::-1, None]), "standard_error": (dims, np.full((9, 1), 0.03))},
            coords={"trial": range(8, -1, -1), "repeat": [0]},
        )
    vae = {
        "truth-20": xr.Dataset(
            {"log_z": ("trial", truth - 0.1), "standard_error": ("trial", np.full(9, 0.04))},
            coords={"trial": range(9)},
        ),
        "prior-hais-1l-20": xr.Dataset(
            {"log_z": (("trial", "transitions"), np.stack([truth - 50, truth - 2], -1))},
            coords={"trial": range(9), "transitions": [50, 1000]},
        ),
    }
    tree = xr.DataTree.from_dict
    return tree(found), tree(mixtures), tree({"standard-hais-1l-100": section}), tree(vae)


def outcomes(**sizes):
    return {b.text: b.outcome for b in beyond.bars(*trees(**sizes), 4000, 150_100)}


def test_all_bars_can_be_met():
    found = outcomes(ours=0.5)
    assert len(found) == 2 + 2 * 4 + 1 + 2
    assert set(found.values()) == {"met"}


def test_all_bars_can_be_missed():
    assert set(outcomes(kl=0.1, ours=9.0, rbm=2.0, images=1.0).values()) == {"missed"}


def test_what_costs_too_much_is_missed_however_small_the_error():
    found = outcomes(ours=0.5, cost=150_101)
    missed = [text for text, outcome in found.items() if outcome == "missed"]
    assert len(missed) == 1 and missed[0].startswith("RBM")


def test_an_interval_around_the_threshold_decides_nothing():
    bar = Bar("", 1.0, Estimate(0.9, 0.8, 1.1))
    assert bar.outcome == "not decided"
    assert Bar("", 1.1, bar.measured).outcome == "met"  # at most
    assert Bar("", 0.79, bar.measured).outcome == "missed"
    assert replace(bar, within_budget=False).outcome == "missed"


def test_bars_of_what_was_not_run_are_left_out():
    tree, *sections = trees()
    small = xr.DataTree.from_dict(
        {n: g.to_dataset() for n, g in tree.children.items() if "50" not in n and "rbm" not in n}
    )
    assert len(beyond.bars(small, *sections, 4000, 150_100)) == 2 + 2 * 4 + 1


def test_shares_and_ratios_of_kl():
    tree = trees()[0]
    assert beyond.average(tree, "warped-fixed", "kl").value == pytest.approx(0.1)
    assert beyond.share_of_mixture(tree).value == pytest.approx(90 / 99)
    ratio = beyond.kl_ratio(tree, "reused", "fixed")
    assert [ratio.value, ratio.low, ratio.high] == pytest.approx([1.1] * 3)  # paired, so exact


def test_published_kl_is_the_best_and_the_last():
    kl = np.array([[0.7, 0.2, 0.5], [0.7, 0.4, 0.3]])
    group = xr.Dataset({"kl_grid": (("trial", "checkpoint"), kl)}, {"checkpoint": [0, 30, 2000]})
    section = xr.DataTree.from_dict({"main-steinis-100": group})
    best, where, end = beyond.published(section, "steinis", 100)
    assert (best.value, where, end.value) == (pytest.approx(0.3), 30, pytest.approx(0.4))


def test_errors_are_those_of_the_same_trials():
    tree, mixtures, rbm, vae = trees(ours=2.0)
    theirs = beyond.square_errors(tree, mixtures, "easy", "direct", "E[x²]")
    np.testing.assert_allclose(theirs, (noise((TRIALS, 6), 1, 20)[:, 2:4] ** 2).mean(1))
    ours = beyond.square_errors(tree, mixtures, "easy", "mixture-maps-hais", "Z")
    np.testing.assert_allclose(ours, noise(TRIALS, 0.2, 4) ** 2)
    errors = beyond.rbm_errors(tree, rbm, "hais-1l", 100)
    np.testing.assert_allclose(errors, np.arange(TRIALS))
    assert (beyond.rbm_errors(tree, rbm, "at-modes-100", 100) == 3).all()
    assert (beyond.rbm_errors(tree, rbm, "at-modes-hais", 100) == 4).all()
    assert (beyond.rbm_errors(tree, rbm, "at-modes-bridge", 100) == 5).all()
    found = beyond.image_errors(tree, vae, "hais-1l", 20)
    np.testing.assert_allclose(found, np.full((9, 1), -2.0))
    own = beyond.image_errors(tree, vae, "flow-bridge", 20)
    assert own.shape == (9, 20)
    np.testing.assert_allclose(own[::-1], noise((9, 20), 0.01, 20), atol=1e-12)
    sigma = beyond.truth_agreement(tree, vae, 20)
    np.testing.assert_allclose(sigma, 0.1 / 0.05)


def test_a_ratio_takes_the_better_of_the_others():
    tree, mixtures, _, _ = trees(ours=2.0)
    compared = (tree, mixtures, "hard", "mixture-maps-hais")
    both = beyond.mse_ratio(*compared, beyond.HAIS, "E[x]")
    better = beyond.mse_ratio(*compared, ("hais-partial",), "E[x]")
    assert both.value == pytest.approx(better.value, rel=1e-12)
    assert both.low < 4 < both.high


def test_rmse_and_its_ratio():
    errors = np.array([3.0, -4.0])
    assert beyond.rmse(errors).value == pytest.approx(np.sqrt(12.5))
    assert beyond.median_error(errors).value == 3.5
    twice = beyond.rmse_ratio(2 * np.outer(errors, [1, -1, 1]), errors)
    assert [twice.value, twice.low, twice.high] == pytest.approx([2] * 3)


def test_the_candidate_is_the_one_that_the_pilots_of_its_kind_chose():
    tree = trees()[0]
    assert beyond.hybrid_of(tree, "flow-hais", 20) == hybrids("hais", 20)[4]
    assert beyond.hybrid_of(tree, "flow-bridge", 20) == hybrids("bridge", 20)[6]
