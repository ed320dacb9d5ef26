import json

import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion import claims
from steinis_lib.companion.intervals import resampling
from steinis_lib.companion.reading_claims import judge
from steinis_lib.companion.sections.s3_adaptive_is import statistics as comparison
from steinis_lib.companion.sections.s3_adaptive_is.experiment import EXPERIMENT
from steinis_lib.companion.sections.s3_adaptive_is.problem import NAME, AdaptiveComparison
from steinis_lib.companion.settings import FAMILIES

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
    """A search of three candidates; the second has the best score and the curve `chosen`."""
    kl = np.array([[3, 0.01, 0.01, 1.0], chosen, [np.inf] * 4])
    return xr.Dataset(
        {
            "kl": (("trial", "candidate", "checkpoint"), kl[None]),
            "score": (("trial", "candidate"), [[-1.0, -0.5, -np.inf]]),
        },
        coords={"trial": [0], "checkpoint": STAGES},
    )


def reached(rng, averaged, last):
    """Adaptive IS, whose two kinds of weights end at these KL."""
    found = curves(rng, [9.0, 5.0, 2.0, averaged])
    return found.assign(kl_last=curves(rng, [9.0, 5.0, 2.0, last]).kl)


def estimated(rng, by_samples, by_grid):
    """Kernel density estimates at factors 0.5 and 1."""
    noise = 0.01 * rng.standard_normal((40, 2))
    return xr.Dataset(
        {
            "by_samples": (("trial", "factor"), np.array(by_samples) + noise),
            "by_grid": (("trial", "factor"), np.array(by_grid) + noise),
        },
        coords={"trial": range(40), "factor": [0.5, 1.0]},
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
            "main-pilot-refine-poor-steinis-wide": pilots([0.1, 0.4, 0.2, 0.5]),
            "main-pilot-refine-good-steinis-wide": pilots([0.3, 0.32, 0.34, 0.36]),
            "main-refine-poor-steinis-wide": refined,
            "main-refine-good-steinis-wide": curves(rng, [0.2, 0.3, 0.5, 0.6]),
            "main-steinis-100": curves(rng, [0.7, 0.3, 0.2, 0.06], [0.01, 0.3, 0.2, 0.05]),
            "main-steinis-200": curves(rng, [0.7, 0.3, 0.2, 0.01], [0.7, 0.001, 0.2, 0.04]),
            "main-steinis-wide-100": curves(rng, [0.7, 0.3, 0.2, 0.05], [0.7, 0.3, 0.2, 0.02]),
            "main-steinis-wide-200": curves(rng, [0.7, 0.3, 0.2, 0.02], [0.7, 0.3, 0.2, 0.03]),
            **{
                f"main-{family}-{m}": curves(rng, [0.7, 0.3, 0.2, 0.1])
                for family in ("steinis-double", "steinis-adagrad")
                for m in (100, 200)
            },
            "easy-steinis-100": curves(rng, [0.4, 0.1, 0.01, 0.004]),
            "easy-steinis-wide-100": curves(rng, [0.4, 0.1, 0.01, 0.005]),
            "main-optimum-0.3": optima(rng, 0.1, 0.9),
            "main-optimum-0.6": optima(rng, 0.6, 0.5),
            "main-optimum-1": optima(rng, 0.9, 0.7),
            "easy-optimum-0.3": optima(rng, 0.5, 0.3),
            "easy-optimum-0.6": optima(rng, 0.3, 0.1),
            "easy-optimum-1": optima(rng, 0.4, 0.2),
            "main-adaptive-0.3": reached(rng, 0.5, 0.2),
            "main-adaptive-0.6": reached(rng, 0.7, 0.15),
            "main-adaptive-1": reached(rng, 0.9, 0.4),
            "main-pmc-20": curves(rng, [0.5, 0.1, 0.03, 0.01]),
            "main-pmc-200": curves(rng, [0.5, 0.1, 0.03, 0.005]),
            "easy-pmc-20": curves(rng, [0.5, 0.1, 0.03, 0.002]),
        }
    )
    for family, low in zip(FAMILIES, (0.3, 0.2, 0.05, 0.1), strict=True):
        kde = estimated(rng, [low, low - 0.1], [low + 0.1, low + 0.2])
        whole[f"main-kde-{family}"] = xr.DataTree(kde)
    for family in ("steinis", "steinis-double", "steinis-adagrad"):
        pilot = pilots([0.1, 0.4, 0.2, 0.5])
        whole[f"main-pilot-refine-poor-{family}"] = xr.DataTree(pilot)
        whole[f"main-refine-poor-{family}"] = xr.DataTree(curves(rng, [0.8, 0.6, 0.6, 0.6]))
    sizes = {
        "leaders": [100, 200],
        "component_scales": [0.3, 0.6, 1.0],
        "optimum_scales": [0.3, 0.6, 1.0],
        "pmc_components": [5, 10, 20, 200],
    }
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
    _, value, low, high = comparison.curve(tree, "main-refine-poor-steinis-wide")
    kl = tree["main-refine-poor-steinis-wide"].kl.values
    assert np.isinf(kl).any()
    np.testing.assert_allclose(value, np.sort(kl, axis=0)[[149, 150]].mean(0))
    assert (high < 1.5 * low).all()
    nearly_half = kl.copy()
    nearly_half[:148] = np.inf
    group = (
        tree["main-refine-poor-steinis-wide"]
        .to_dataset()
        .assign(kl=(("trial", "checkpoint"), nearly_half))
    )
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
    assert comparison.runs(tree) == [(family, m) for family in FAMILIES for m in (100, 200)]
    elsewhere = ("steinis", "steinis-wide")
    assert comparison.runs(tree, "easy") == [(family, 100) for family in elsewhere]
    assert comparison.best_run(tree) == ("steinis-wide", 100)
    assert comparison.best_run(tree, "easy") == ("steinis", 100)


def test_optima_of_a_target(tree):
    assert covers(comparison.optimum(tree, "easy", 0.6), 0.1, 0.01)
    assert covers(comparison.optimum(tree, "main", 0.3), 0.9, 0.01)
    assert covers(comparison.optimum(tree, "main", 0.3, "variance"), 0.1, 0.01)


def test_early_is_of_the_chosen_candidate_and_after_the_start(tree):
    assert comparison.early(tree, "main-pilot-refine-poor-steinis-wide") == (2, 20)
    assert comparison.early(tree, "main-pilot-refine-good-steinis-wide") == (1, 10)


def test_refined_is_a_ratio_of_medians_where_pilots_did_best(tree):
    ratio, transitions = comparison.refined(tree, "poor", "steinis-wide")
    kl = tree["main-refine-poor-steinis-wide"].kl.values
    assert transitions == 20
    assert ratio.value == pytest.approx(np.median(kl[:, 2]) / np.median(kl[:, 0]))
    assert covers(ratio, 0.25, 0.12)
    ratio, transitions = comparison.refined(tree, "good", "steinis-wide")
    assert transitions == 10
    assert covers(ratio, 1.5, 0.15)


def test_readings_of_the_kl_of_steinis(tree):
    assert covers(comparison.warped_kl(tree), 0.02, 0.002)
    assert comparison.warped_kl(tree) == comparison.at_end(tree, "main-steinis-wide-100", "kl_grid")
    assert covers(comparison.warped_kl(tree, kernel="rule"), 0.04, 0.003)
    assert covers(comparison.warped_kl(tree, kernel="rule", leaders=100), 0.05, 0.004)
    assert covers(comparison.warped_kl(tree, leaders=200), 0.03, 0.003)
    assert covers(comparison.warped_kl(tree, kernel="double"), 0.1, 0.01)
    assert covers(comparison.warped_kl(tree, kernel="adagrad"), 0.1, 0.01)
    assert covers(comparison.warped_kl(tree, measure="particles"), 0.01, 0.001)  # steinis-200
    assert covers(comparison.warped_kl(tree, target="easy"), 0.004, 0.0005)
    assert covers(comparison.warped_kl(tree, target="easy", kernel="wide"), 0.005, 0.0005)


def test_readings_by_kernel_density_estimates(tree):
    half = {"factor": 0.5, "leaders": 200}
    assert covers(comparison.warped_kl(tree, measure="kde-samples", **half), 0.05, 0.01)
    assert covers(comparison.warped_kl(tree, measure="kde-samples"), -0.05, 0.01)
    assert covers(comparison.warped_kl(tree, measure="kde-grid", **half), 0.15, 0.01)
    assert covers(comparison.warped_kl(tree, measure="kde-grid", kernel="rule"), 0.5, 0.01)


def test_readings_of_fixed_components(tree):
    kl = comparison.adaptive_is_kl
    assert covers(kl(tree), 0.1, 0.01)
    assert covers(kl(tree, scale=1.0), 0.9, 0.01)
    assert covers(kl(tree, weights="optimal"), 0.5, 0.01)
    assert covers(kl(tree, weights="optimal", scale=0.3), 0.9, 0.01)
    assert covers(kl(tree, weights="averaged"), 0.5, 0.05)
    assert covers(kl(tree, weights="averaged", scale=0.6), 0.7, 0.05)
    assert covers(kl(tree, weights="last"), 0.15, 0.02)
    assert covers(kl(tree, weights="optimal", target="easy"), 0.1, 0.01)


def test_readings_of_mixtures_in_general(tree):
    assert covers(comparison.mixtures_cannot(tree), 0.005, 0.001)
    assert covers(comparison.mixtures_cannot(tree, components=20), 0.01, 0.001)
    assert covers(comparison.mixtures_cannot(tree, components=20, target="easy"), 0.002, 0.001)
    optimal = comparison.mixtures_cannot(tree, weights="optimal", scale=0.6)
    assert optimal == comparison.adaptive_is_kl(tree, weights="optimal", scale=0.6)


def test_the_order_is_a_ratio_of_means(tree):
    order = comparison.adaptive_is_order
    assert covers(order(tree), 0.02 / 0.1, 0.03)
    assert covers(order(tree, weights="averaged"), 0.02 / 0.5, 0.01)
    assert covers(order(tree, weights="optimal", scale=1.0), 0.02 / 0.7, 0.01)
    assert covers(order(tree, weights="free"), 0.02 / 0.005, 1)
    assert covers(order(tree, kernel="rule", leaders=100), 0.05 / 0.1, 0.1)
    assert covers(order(tree, target="easy", weights="free"), 0.004 / 0.002, 0.5)


def test_a_ratio_of_means_holds_the_truth_as_often_as_it_says():
    rng, held = np.random.default_rng(0), 0
    for _ in range(300):
        ours, theirs = rng.gamma(9.0, 2.0 / 9, 10), rng.gamma(9.0, 1.0 / 9, 10)
        found = comparison.ratio_of_means(ours, theirs)
        held += found.low < 2 < found.high
    assert 0.92 < held / 300 < 0.99
    assert comparison.ratio_of_means(np.array([1.0, np.inf]), np.ones(3) + 0.1).low == np.inf


@pytest.mark.slow
def test_refinement_takes_the_better_kernel_of_those_that_were_run(tree):
    best = comparison.refine_adaptive_is(tree)
    assert best == comparison.refined(tree, "poor", "steinis-wide")[0]
    rule = comparison.refine_adaptive_is(tree, kernel="rule")
    assert covers(rule, 0.75, 0.1)
    good = comparison.refine_adaptive_is(tree, start="good")
    assert good == comparison.refined(tree, "good", "steinis-wide")[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: comparison.warped_kl(t, kernel="narrow"), "kernel 'narrow': expected one of"),
        (lambda t: comparison.warped_kl(t, kernel="double", target="easy"), "rule, wide, better"),
        (lambda t: comparison.warped_kl(t, leaders=300), "leaders 300: expected"),
        (lambda t: comparison.warped_kl(t, leaders=200, target="easy"), "leaders 200: expected"),
        (lambda t: comparison.warped_kl(t, measure="guess"), "measure 'guess'"),
        (lambda t: comparison.adaptive_is_kl(t, scale=0.4), "scale 0.4"),
        (lambda t: comparison.adaptive_is_kl(t, weights="equal"), "weights 'equal'"),
        (lambda t: comparison.adaptive_is_kl(t, weights="last", target="easy"), "target 'easy'"),
        (lambda t: comparison.refine_adaptive_is(t, start="bad"), "start 'bad': expected one of"),
        (lambda t: comparison.refine_adaptive_is(t, kernel="rule", start="good"), "wide, better"),
    ],
)
def test_unknown_words_are_refused(tree, call, message):
    with pytest.raises(ValueError, match=message):
        call(tree)


def test_every_reading_of_the_ledger_has_what_it_asks_for(tree):
    """The published sizes have its leaders, components, scales and factors, and its families."""
    p = AdaptiveComparison.of_profile("paper")
    names = {cell.label for cell in EXPERIMENT.cells(p)}
    assert {"main-pmc-5", "main-optimum-0.3", "main-kde-steinis-double"} < names
    groups = {name: node.to_dataset() for name, node in tree.children.items()}
    rng = np.random.default_rng(0)
    kde = ("by_samples", "by_grid")
    for name in names:
        if "-kde-" in name:
            groups[name] = xr.Dataset(
                {v: (("trial", "factor"), rng.random((5, 4))) for v in kde},
                {"factor": list(p.kde_factors)},
            )
        elif "optimum" in name:
            groups[name] = optima(rng, 0.5, 0.3)
        elif "pilot-refine" in name:
            groups[name] = pilots([0.1, 0.4, 0.2, 0.5])
        elif "pilot" not in name:
            groups[name] = reached(rng, 0.5, 0.2)
    whole = xr.DataTree.from_dict({name: groups[name] for name in groups if name in names})
    whole.attrs["parameters"] = p.model_dump_json()
    ours = [claim for claim in claims.ledger() if claim.experiment == NAME]
    assert {claim.id.replace("-", "_") for claim in ours} == set(RULES)
    with resampling(5):
        for claim in ours:
            assert (claim.reproduced, claim.partly) == RULES[claim.id.replace("-", "_")]
            assert all(claim.judged(reading, whole).verdict for reading in claim.readings)


RULES = {
    "warped_kl": ((0, 0.003), (0, 0.01)),
    "adaptive_is_kl": ((0.42, np.inf), (0.2, np.inf)),
    "adaptive_is_order": ((0, 0.8), (0, 1.25)),
    "mixtures_cannot": ((0.42, np.inf), (0.2, np.inf)),
    "refine_adaptive_is": ((0, 0.9), (0, 1)),
}
"""The ranges of the claims, as in the ledger."""


def made_up(rng, *, kl=0.002, optimum=0.6, mixture=0.6, refined=0.5):
    """A result of the published size in which all settings of a method are as good."""

    def run(level, trials, start=1.0):
        factors = rng.gamma(9.0, 1 / 9, (trials, 4))
        values = np.array([start, level, level, level]) * factors
        names = ("kl", "kl_grid", "kl_last")
        found = dict.fromkeys(names, (("trial", "checkpoint"), values))
        return xr.Dataset(found, coords={"trial": range(trials), "checkpoint": STAGES})

    groups = {f"main-{family}-{m}": run(kl, 10) for family in FAMILIES for m in (100, 200)}
    for scale in ("0.3", "0.6", "1"):
        values = optimum * rng.gamma(9.0, 1 / 9, (10, 1)) * np.array([[1.0, 0.5]])
        groups[f"main-optimum-{scale}"] = xr.Dataset(
            {"kl": (("trial", "objective"), values)}, {"objective": ["variance", "reverse-kl"]}
        )
    groups["main-pmc-200"] = run(mixture, 20)
    for family in FAMILIES:
        groups[f"main-pilot-refine-poor-{family}"] = pilots([1.0, 0.4, 0.2, 0.5])
        groups[f"main-refine-poor-{family}"] = run(refined, 20)
    tree = xr.DataTree.from_dict(groups)
    sizes = {"component_scales": [0.3, 0.6, 1.0], "optimum_scales": [0.3, 0.6, 1.0]}
    tree.attrs["parameters"] = json.dumps(sizes)
    return tree


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "true", "false"),
    [
        ("warped_kl", {"kl": 0.0025}, {"kl": 0.02}),
        ("adaptive_is_kl", {"optimum": 0.8}, {"optimum": 0.25}),
        ("adaptive_is_order", {"kl": 0.3}, {"kl": 0.8}),
        ("mixtures_cannot", {"mixture": 0.6}, {"mixture": 0.3}),
        ("refine_adaptive_is", {"refined": 0.6}, {"refined": 1.5}),
    ],
)
def test_rules_tell_a_true_claim_from_a_false_one(name, true, false):
    """Made-up results of the published size: neither kind of error in 6 repeats."""
    verdicts = {"true": [], "false": []}
    for seed in range(6):
        for which, change in (("true", true), ("false", false)):
            result = made_up(np.random.default_rng([seed, which == "true"]), **change)
            with resampling(200):
                verdicts[which].append(judge(getattr(comparison, name)(result), *RULES[name]))
    assert "not reproduced" not in verdicts["true"]
    assert "reproduced" not in verdicts["false"]
    assert verdicts["true"].count("reproduced") > 3  # and the rule can say so


def test_a_run_that_diverged_makes_the_mean_infinite(tree):
    found = comparison.at_end(tree, "main-refine-poor-steinis-wide")
    assert (found.value, found.low, found.high) == (np.inf,) * 3
