"""Statements of the page on likelihoods, and the data that they are about."""

import numpy as np
from prose import in_page, result

from steinis_lib.companion.sections.s5_likelihood import statistics as likelihood
from steinis_lib.companion.settings import FAMILIES

PAGE = "05_vae.ipynb"


def vae():
    return result("vae")


def means(method: str, d: int, condition: str = "prior") -> dict[int, float]:
    """Transitions → mean error of log p̂(x), nats."""
    k, error = likelihood.errors(vae(), condition, method, d)
    return dict(zip(k.tolist(), error.mean(0).tolist(), strict=True))


def test_hais_is_nearer_with_each_kernel_and_any_number_of_transitions() -> None:
    assert in_page(
        PAGE, "HAIS-1L is nearer to the truth with each kernel, and with any number of transitions."
    )
    assert in_page(PAGE, "On average over $d = 20$ and 50 it holds with each of the four kernels")
    for kernel in ("rule", "double", "wide", "adagrad"):
        for measure in ("mean", "median", "rmse"):
            assert likelihood.steinis_ahead(vae(), kernel=kernel, measure=measure).high < 0
    for k in (50, 100, 300, 1000):
        assert likelihood.steinis_ahead(vae(), transitions=k).high < 0


def test_the_gap_is_larger_at_50() -> None:
    assert in_page(PAGE, "by more at $d = 50$ than at 20")
    assert likelihood.steinis_ahead(vae(), d=50).high < likelihood.steinis_ahead(vae(), d=20).low


def test_the_encoder_leaves_about_a_nat() -> None:
    assert in_page(PAGE, "With the encoder's $q_0$ the gap is about a nat at most")
    gap = likelihood.steinis_ahead(vae(), start="encoder")
    assert -1.5 < gap.low < gap.high < 0.5


def test_adagrad_is_ahead_at_10() -> None:
    assert in_page(
        PAGE,
        "At $d = 10$ SteinIS with AdaGrad's steps is nearer to the truth than HAIS-1L from 100 "
        "transitions on.",
    )
    assert in_page(PAGE, "at $d = 10$ SteinIS with AdaGrad's steps is ahead")
    for k in (100, 300, 1000):
        found = likelihood.steinis_ahead(vae(), kernel="adagrad", d=10, transitions=k)
        assert found.low > 0


def test_curves_of_the_kernels() -> None:
    assert in_page(PAGE, "With AdaGrad's steps the curve rises up to the end at $d = 50$")
    assert (np.diff(list(means("steinis-adagrad", 50).values())) > 0).all()
    assert in_page(PAGE, "At $d = 10$ and 20, nothing changes any more after 300 transitions")
    assert in_page(PAGE, "with a wide kernel the estimate is nearest to the truth there, and falls")
    for d in (10, 20):
        rule, wide = means("steinis", d), means("steinis-wide", d)
        assert abs(rule[300] - rule[1000]) < 0.1
        assert min(wide, key=lambda k: abs(wide[k])) == 300


def test_weighed_leaders_pass_the_truth() -> None:
    assert in_page(PAGE, "They pass the truth on the way, and go on.")
    assert in_page(
        PAGE, "the only variant whose curves are above those of HAIS-1L after 1000 transitions"
    )
    for d in (20, 50):
        leaders, hais = means("steinis-leaders", d), means("hais-1l", d)
        assert leaders[50] < 0 < leaders[1000]
        assert leaders[1000] > hais[1000]
        assert all(means(family, d)[1000] < hais[1000] for family in FAMILIES)


def test_performs_well_at_10_only() -> None:
    assert in_page(PAGE, "At $d = 10$ the best of the four kernels is within a nat of the truth.")
    assert likelihood.distance(vae(), d=10).high < 1 < likelihood.distance(vae(), d=20).low


def test_the_truth_is_not_in_question() -> None:
    assert in_page(PAGE, "Both reference values agree to a few thousandths of a nat, and")
    assert in_page(PAGE, "bounds from both sides meet")
    for d in (10, 20, 50):
        assert abs(likelihood.truth_difference(vae(), d).value) < 0.005
        gap = likelihood.gap(vae(), d)
        assert max(abs(gap.low), abs(gap.high)) < 0.02


def test_ten_leapfrogs_are_far_better() -> None:
    assert in_page(PAGE, "Ten leapfrog steps a transition are far better than one")
    for d in (20, 50):
        one, ten = means("hais-1l", d), means("hais-10l", d)
        assert all(abs(one[k]) > 4 * abs(ten[k]) for k in one)
