"""What the page of Section 3 says in plain words, against the stored data."""

import numpy as np
from prose import in_page, result

from steinis_lib.companion.fairness_page import at_an_end, tuning_rows
from steinis_lib.companion.intervals import mean
from steinis_lib.companion.search import best
from steinis_lib.companion.sections.s3_adaptive_is import statistics as comparison
from steinis_lib.companion.tuning_records import trials_of

PAGE = "03_adaptive_is.ipynb"
DATA = "adaptive-comparison"
TARGETS = ("main", "easy", "hard")


def test_no_divergence_comes_near_the_paper_s_figure() -> None:
    assert in_page(
        PAGE, "All readings that measure a divergence lie far above 0.003, on each target"
    )
    data = result(DATA)
    found = [comparison.warped_kl(data, target=target) for target in TARGETS]
    found += [
        comparison.warped_kl(data, kernel=kernel, leaders=m)
        for kernel in comparison.KERNELS
        for m in (100, 200)
    ]
    found.append(comparison.warped_kl(data, measure="particles"))
    factors = data["main-kde-steinis"].factor.values
    found += [comparison.warped_kl(data, measure="kde-grid", factor=f) for f in factors]
    assert min(estimate.low for estimate in found) > 10 * 0.003


def test_a_kernel_estimate_at_its_samples_falls_through_0_003_and_below_zero() -> None:
    assert in_page(
        PAGE,
        "through 0.003 and below zero, so that some bandwidths give more than 0.003 and others "
        "less",
    )
    estimates = result(DATA)["main-kde-steinis-wide"].by_samples
    assert (estimates.sel(factor=1).values > 0.003).all()
    assert (estimates.sel(factor=2).values < 0).all()


def test_the_kernel_estimate_of_exact_draws_is_anything() -> None:
    assert in_page(PAGE, "exact draws seem to be farther than 0.003 from $p$ at each of these")
    assert in_page(PAGE, "the estimate falls through zero as the bandwidth grows")
    group = result(DATA)["main-kde"].to_dataset()
    assert float(group.by_grid.min()) > 0.003
    means = group.by_samples.mean("trial").transpose("n", "factor").values
    assert (np.diff(means, axis=1) < 0).all()
    assert (means[:, 0] > 0).all()
    assert (means[:, -1] < 0).all()


def test_the_order_depends_on_what_adaptive_is_minimises() -> None:
    assert in_page(
        PAGE, "SteinIS in all four families is closer than the weights of least variance"
    )
    assert in_page(PAGE, "With its wide kernel it is about as close as the best weights")
    data = result(DATA)
    for kernel in comparison.KERNELS:
        assert comparison.adaptive_is_order(data, kernel=kernel).high < 1
    wide = comparison.adaptive_is_order(data, kernel="wide", weights="optimal")
    assert wide.low < 1 < wide.high
    assert wide.low > 0.75
    assert wide.high < 1.25


def test_the_order_depends_on_the_kernel() -> None:
    assert in_page(PAGE, "SteinIS is several times farther away than the best weights")
    assert in_page(PAGE, "do not decide between it and what stochastic optimisation reaches")
    data = result(DATA)
    assert comparison.adaptive_is_order(data, kernel="rule", weights="optimal").low > 3
    for weights in ("averaged", "last"):
        ratio = comparison.adaptive_is_order(data, kernel="rule", weights=weights)
        assert ratio.low < 1 < ratio.high


def test_a_mixture_that_adapts_fully_is_closer_than_steinis() -> None:
    assert in_page(
        PAGE, "the mixture is closer than every family of SteinIS, by more than a factor"
    )
    assert in_page(
        PAGE, "Mixtures whose means and covariances adapt are closer than SteinIS on all three"
    )
    data = result(DATA)
    for kernel in comparison.KERNELS:
        assert comparison.adaptive_is_order(data, kernel=kernel, weights="free").low > 10
    for target in TARGETS:
        assert comparison.adaptive_is_order(data, target=target, weights="free").low > 1


def test_more_bend_favours_steinis() -> None:
    assert in_page(PAGE, "On the easy target even the weights of least variance are closer than")
    assert in_page(PAGE, "on the hard one SteinIS is closer than the best weights")
    data = result(DATA)
    easy = comparison.adaptive_is_order(data, target="easy")
    hard = comparison.adaptive_is_order(data, target="hard", weights="optimal")
    assert easy.low > 1
    assert hard.high < 1
    for weights in ("variance", "optimal"):
        ratios = [
            comparison.adaptive_is_order(data, target=target, weights=weights).value
            for target in ("easy", "main", "hard")
        ]
        assert ratios == sorted(ratios, reverse=True)


def test_0_42_is_a_matter_of_scale_and_weights() -> None:
    assert in_page(PAGE, "below it on the main target at σ = 0.3 and 0.6, and above it at σ = 1")
    assert in_page(PAGE, "optimum of the variance is above 0.42 at every scale")
    data = result(DATA)
    best = {scale: comparison.optimum(data, "main", scale) for scale in (0.3, 0.6, 1.0)}
    assert best[0.3].high < 0.42
    assert best[0.6].high < 0.42
    assert best[1.0].low > 0.42
    for target in ("main", "hard"):
        for scale in (0.2, 0.3, 0.6, 1.0, 1.5):
            assert comparison.optimum(data, target, scale, "variance").low > 0.42


def test_least_variance_on_the_hard_target_is_best_at_the_widest_scale() -> None:
    assert in_page(PAGE, "least variance was best at the widest σ that we tried")
    data = result(DATA)
    found = {s: comparison.optimum(data, "hard", s, "variance") for s in (0.2, 0.3, 0.6, 1.0, 1.5)}
    assert min(found, key=lambda s: found[s].value) == max(found)


def test_the_chosen_settings_still_improve_at_the_last_transition() -> None:
    assert in_page(PAGE, "The four chosen settings were still improving at the last transition")
    data = result(DATA)
    for family in comparison.KERNELS.values():
        curve = comparison.best_curve(data[f"main-pilot-{family}"].to_dataset())
        assert curve[-1] < curve[:-1].min()


def test_no_run_folds() -> None:
    assert in_page(PAGE, "At the paper's sizes no run folded")
    data = result(DATA)
    for target in TARGETS:
        for family, m in comparison.runs(data, target):
            assert not data[f"{target}-{family}-{m}"].folds.values.any()


def test_the_wide_run_that_is_shown_is_lopsided() -> None:
    assert in_page(PAGE, "the right half of the plane ends with 61 % of the mass, where the target")
    group = result(DATA)["main-panels-steinis-wide"].to_dataset().isel(trial=0)
    right = group.x1.values > 0

    def share(stage: int) -> float:
        density = group.density.sel(stage=stage).transpose("x1", "x2").values
        return float(density[right].sum() / density.sum())

    assert round(100 * share(2000)) == 61
    assert abs(share(-1) - 0.5) < 0.01


def test_refinement_helps_from_far_and_not_from_near() -> None:
    assert in_page(PAGE, "SteinIS takes away more than half of the KL with its wide kernel")
    assert in_page(PAGE, "it takes away nothing that the data can show")
    data = result(DATA)
    for start in ("poor", "fair"):
        assert comparison.refine_adaptive_is(data, kernel="wide", start=start).high < 0.5
    for start in ("close", "good"):
        assert comparison.refine_adaptive_is(data, kernel="wide", start=start).high > 1


def test_refinement_has_to_stop_in_time() -> None:
    assert in_page(PAGE, "KL is smallest after 20 transitions, and after 500 it is several times")
    data = result(DATA)
    transitions, value, low, _ = comparison.curve(data, "main-refine-fair-steinis-wide")
    assert transitions[value.argmin()] == 20
    assert low[-1] > 3 * value[0]


def test_twenty_gaussians_come_closer_than_steinis() -> None:
    assert in_page(PAGE, "It does not come closer than a mixture of 20 Gaussians whose means and")
    data = result(DATA)
    mixture = mean(comparison.free_components_kl(data, 20))
    assert mixture.high < comparison.warped_kl(data).low


def test_one_search_of_adaptive_is_went_on() -> None:
    assert in_page(PAGE, "three more where the best of six was at an end: once, at σ = 0.3.")
    assert in_page(PAGE, "The larger rate was better, but that kind did not come close to the best")
    data = result(DATA)
    assert at_an_end(tuning_rows(data)[0]) == []
    longer = []
    for scale in (0.3, 0.6, 1):
        record = data[f"main-pilot-adaptive-{scale:g}"].to_dataset()
        for kind in range(record.sizes["trial"]):
            trials = trials_of(record.isel(trial=[kind]))
            if len(trials) > 6:
                longer.append((scale, kind))
                first = best(trials[:6])
                assert len(trials) == 9
                assert best(trials).candidate.alpha > first.candidate.alpha
                scores = np.nanmax(record.score.values, axis=1)
                assert scores[kind] < scores.max() - 0.3
    assert [scale for scale, _ in longer] == [0.3]
