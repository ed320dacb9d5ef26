import json

import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.sections.s3_adaptive_is import statistics as comparison

STAGES = [0, 10, 20, 50]
NOISE = 0.2
MEDIAN = 1 + NOISE * (np.log(2) - 1)


def curves(rng, kl, kl_grid=None, trials=300):
    """Repeats with these means, and medians `MEDIAN` times as large."""
    found = {}
    for name, means in (("kl", kl), ("kl_grid", kl if kl_grid is None else kl_grid)):
        factor = 1 + NOISE * (rng.exponential(size=(trials, len(means))) - 1)
        found[name] = (("trial", "checkpoint"), np.array(means) * factor)
    found["folds"] = ("trial", rng.poisson(1.5, trials).astype(float))
    return xr.Dataset(found, coords={"trial": range(trials), "checkpoint": STAGES})


def optima(rng, variance, reverse):
    kl = np.array([variance, reverse]) + 0.01 * rng.standard_normal((60, 2))
    return xr.Dataset(
        {"kl": (("trial", "objective"), kl)},
        coords={"trial": range(60), "objective": ["variance", "reverse-kl"]},
    )


def pilots(chosen):
    """Twelve candidates with three pilots each; number 7 is `chosen`, best at the end."""
    kl, folds = np.full((12, 3, 4), 3.0), np.zeros((12, 3))
    kl[2] = [3, 0.01, 0.01, 1.0]  # better early, not at the end
    kl[5], folds[5] = 0.001, [1, 4, 0]  # folds
    kl[7] = np.array(chosen) + np.array([[-0.005], [0.0], [0.005]])
    return xr.Dataset(
        {"kl": (("trial", "checkpoint"), kl.reshape(36, 4)), "folds": ("trial", folds.reshape(36))},
        coords={"trial": range(36), "checkpoint": STAGES},
    )


@pytest.fixture
def tree():
    rng = np.random.default_rng(7)
    refined = curves(rng, [0.8, 0.3, 0.2, 0.9])
    refined["kl"][:, 0] = 0.8 * np.exp(rng.standard_normal(300))  # of median 0.8
    refined["kl"][:, 2] = 0.2 * np.exp(0.3 * rng.standard_normal(300))
    refined["kl"][40:50, 2:] = np.inf  # diverged
    whole = xr.DataTree.from_dict(
        {
            "main-pilot-steinis": pilots([0.01] * 4),
            "main-pilot-refine-poor": pilots([0.1, 0.4, 0.2, 0.5]),
            "main-pilot-refine-good": pilots([0.3, 0.32, 0.34, 0.36]),
            "main-refine-poor": refined,
            "main-refine-good": curves(rng, [0.2, 0.3, 0.5, 0.6]),
            "main-steinis-100": curves(rng, [0.7, 0.3, 0.2, 0.06], [0.01, 0.3, 0.2, 0.05]),
            "main-steinis-200": curves(rng, [0.7, 0.3, 0.2, 0.01], [0.7, 0.001, 0.2, 0.04]),
            "main-steinis-wide-100": curves(rng, [0.7, 0.3, 0.2, 0.05], [0.7, 0.3, 0.2, 0.02]),
            "main-steinis-wide-200": curves(rng, [0.7, 0.3, 0.2, 0.02], [0.7, 0.3, 0.2, 0.03]),
            "easy-steinis-100": curves(rng, [0.4, 0.1, 0.01, 0.004]),
            "easy-steinis-wide-100": curves(rng, [0.4, 0.1, 0.01, 0.005]),
            "main-optimum-0.3": optima(rng, 0.1, 0.9),
            "main-optimum-0.6": optima(rng, 0.6, 0.5),
            "main-optimum-1": optima(rng, 0.9, 0.7),
            "easy-optimum-0.6": optima(rng, 0.3, 0.1),
        }
    )
    sizes = {"leaders": [100, 200], "component_scales": [0.3, 0.6, 1.0]}
    whole.attrs["parameters"] = json.dumps(sizes)
    return whole


def covers(estimate, truth, width):
    """The value is within about four sigma of the truth; the interval is no wider than `width`."""
    low, value, high = estimate.low, estimate.value, estimate.high
    return abs(value - truth) < high - low < width and low < value < high


def test_curve_is_the_median_over_repeats(tree):
    for variable, end in (("kl", 0.06), ("kl_grid", 0.05)):
        x, value, low, high = comparison.curve(tree, "main-steinis-100", variable)
        assert x.tolist() == STAGES
        values = tree["main-steinis-100"][variable].values
        np.testing.assert_allclose(value, np.median(values, axis=0))
        assert abs(value[3] - MEDIAN * end) < high[3] - low[3]  # within about four sigma
        assert high[3] < end
        assert ((low < value) & (value < high) & (high < 1.1 * low)).all()


def test_curve_does_not_mind_runs_that_diverged(tree):
    _, value, low, high = comparison.curve(tree, "main-refine-poor")
    kl = tree["main-refine-poor"].kl.values
    assert np.isinf(kl).any()
    np.testing.assert_allclose(value, np.sort(kl, axis=0)[[149, 150]].mean(0))
    assert (high < 1.5 * low).all()
    nearly_half = kl.copy()
    nearly_half[:148] = np.inf
    group = tree["main-refine-poor"].to_dataset().assign(kl=(("trial", "checkpoint"), nearly_half))
    _, value, low, high = comparison.curve(xr.DataTree.from_dict({"a": group}), "a")
    assert (low < value).all() and (value[:2] < 10).all()
    assert (high > 1e6).all()  # it may as well be infinite, and is a number


def test_at_end_takes_the_mean_at_the_last_checkpoint_or_of_a_single_number(tree):
    found = comparison.at_end(tree, "main-steinis-100")
    assert found.value == pytest.approx(tree["main-steinis-100"].kl.values[:, 3].mean())
    assert covers(found, 0.06, 0.004)
    assert covers(comparison.at_end(tree, "main-steinis-100", "kl_grid"), 0.05, 0.004)
    assert covers(comparison.at_end(tree, "main-steinis-100", "folds"), 1.5, 0.4)


def test_the_best_run_is_by_exact_kl_at_the_end(tree):
    families = ("steinis", "steinis-wide")
    assert comparison.runs(tree) == [(family, m) for family in families for m in (100, 200)]
    assert comparison.runs(tree, "easy") == [(family, 100) for family in families]
    assert comparison.best_run(tree) == ("steinis-wide", 100)
    assert comparison.best_run(tree, "easy") == ("steinis", 100)


def test_optima_of_a_target(tree):
    assert covers(comparison.optimum(tree, "easy", 0.6), 0.1, 0.01)
    assert covers(comparison.optimum(tree, "main", 0.3), 0.9, 0.01)
    assert covers(comparison.optimum(tree, "main", 0.3, "variance"), 0.1, 0.01)


def test_early_is_of_the_chosen_candidate_and_after_the_start(tree):
    assert comparison.early(tree, "main-pilot-refine-poor") == (2, 20)
    assert comparison.early(tree, "main-pilot-refine-good") == (1, 10)


def test_refined_is_a_ratio_of_medians_where_pilots_did_best(tree):
    ratio, transitions = comparison.refined(tree, "poor")
    kl = tree["main-refine-poor"].kl.values
    assert transitions == 20
    assert ratio.value == pytest.approx(np.median(kl[:, 2]) / np.median(kl[:, 0]))
    assert covers(ratio, 0.25, 0.12)
    ratio, transitions = comparison.refined(tree, "good")
    assert transitions == 10
    assert covers(ratio, 1.5, 0.15)


def test_statistics_of_the_claims(tree):
    assert covers(comparison.warped_kl(tree), 0.02, 0.002)
    assert comparison.warped_kl(tree) == comparison.at_end(tree, "main-steinis-wide-100", "kl_grid")
    assert covers(comparison.adaptive_is_kl(tree), 0.5, 0.01)
    assert comparison.refine_adaptive_is(tree) == comparison.refined(tree, "poor")[0]


def test_a_run_that_diverged_makes_the_mean_infinite(tree):
    found = comparison.at_end(tree, "main-refine-poor")
    assert (found.value, found.low, found.high) == (np.inf,) * 3
