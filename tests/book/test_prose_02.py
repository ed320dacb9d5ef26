"""What the page on estimates says in words, checked against the stored result."""

import numpy as np
import pytest
from prose import in_page, result

from steinis_lib.companion import claims
from steinis_lib.companion.intervals import mean, share
from steinis_lib.companion.sections.s2_mixtures import statistics as gmm
from steinis_lib.companion.sections.s2_mixtures.experiment import (
    TUNED,
    interacting_trials,
    label,
    methods_on,
    tuning_label,
)
from steinis_lib.companion.sections.s2_mixtures.problem import EXTRA, MIXTURES
from steinis_lib.companion.settings import FAMILIES, axes_of
from steinis_lib.companion.tuning_records import chosen, tuning_table

PAGE = "02_gmm_estimation.ipynb"
KINDS = (*MIXTURES, *EXTRA)
EXPECTATIONS = tuple(gmm.EXPECTATIONS)


@pytest.fixture(scope="module")
def tree():
    return result("gmm-estimation")


def claim_of(name):
    return next(claim for claim in claims.ledger() if claim.id == name)


def to_direct(tree, kind, method):
    return gmm.compare(tree, kind, method, "direct", EXPECTATIONS)


def test_the_summary_at_the_top(tree):
    assert in_page(
        PAGE,
        "with the bandwidth that the paper prints, and easy mixtures drawn at random, SteinIS is "
        "as far from exact sampling as plain importance sampling from $q_0$ is. With a much wider, "
        "tuned kernel it comes near exact sampling on mild mixtures and on the one fixed mixture "
        "that we drew, with 1.2 to 1.3 times the error. On easy mixtures drawn at random it stays "
        "a little behind, and on hard ones far behind.",
    )
    beside_is = gmm.compare(tree, "easy", "steinis", "is", EXPECTATIONS)
    assert beside_is.low < 1 < beside_is.high
    assert to_direct(tree, "easy", "steinis").low > 3
    for kind, times in (("fixed", 1.2), ("mild", 1.3)):
        found = to_direct(tree, kind, "steinis-wide")
        assert found.value == pytest.approx(times, abs=0.05)
        assert found.high < 2
    easy = to_direct(tree, "easy", "steinis-wide")
    assert easy.low > 1.2
    assert easy.value > 1.5
    assert easy.high < 2.5
    assert to_direct(tree, "hard", "steinis-wide").low > 3


def test_the_tuned_bandwidths(tree):
    assert in_page(PAGE, "The tuned multiple of SteinIS, wide, is 10 to 57 times the printed")
    found = [chosen(tree[tuning_label(kind, "steinis-wide")]).multiplier for kind in KINDS]
    assert [round(min(found)), round(max(found))] == [10, 57]


def test_no_setting_is_at_an_end(tree):
    assert in_page(PAGE, "no chosen setting stands at an end of its range")
    for kind in KINDS:
        for name in (n for n in TUNED if n in methods_on(kind)):
            record = tree[tuning_label(kind, name)].to_dataset()
            row = tuning_table(record, axes_of(name), name)
            assert "end of the range" not in row.values(), (kind, name)


def test_tuning_budgets_are_close(tree):
    assert in_page(PAGE, "within one per cent, as many score evaluations for each")
    budgets = []
    for name in TUNED:
        row = tuning_table(tree[tuning_label("easy", name)].to_dataset(), axes_of(name), name)
        budgets.append(float(str(row["score evaluations"]).replace(",", "")))
    assert max(budgets) / min(budgets) < 1.01


def test_slopes(tree):
    assert in_page(
        PAGE,
        "On easy mixtures the slopes of SteinIS with its printed bandwidth are flatter than with "
        "its tuned one, for each of the three expectations. On hard mixtures the slopes of all its "
        "four families are flatter than −1, the Monte Carlo rate, on each expectation.",
    )
    for task in EXPECTATIONS:
        printed, tuned = (
            gmm.slope(*gmm.square_errors(tree, "easy", name, task))
            for name in ("steinis", "steinis-wide")
        )
        assert printed.low > tuned.high, task
        for family in FAMILIES:
            assert gmm.slope(*gmm.square_errors(tree, "hard", family, task)).low > -1


def test_the_readings_of_the_rate(tree):
    assert in_page(
        PAGE,
        "The tuned kernel has about the usual rate on easy mixtures, on the fixed one and on mild "
        "ones. Readings with the printed bandwidth or twice that are flatter, and so are those on "
        "hard mixtures or without weights. The one steep slope, of $Z$ with the printed bandwidth, "
        "is very uncertain, because few trials carry it.",
    )
    for kind in ("easy", "fixed", "mild"):
        usual = gmm.mse_rate(tree, kernel="wide", target=kind)
        assert usual.value == pytest.approx(-1, abs=0.1), kind
        assert usual.high < -0.75, kind
    for choices in (
        {"kernel": "rule"},
        {"kernel": "double"},
        {"target": "hard"},
        {"task": "expectations", "average": "plain"},
    ):
        flat = gmm.mse_rate(tree, **choices)
        assert flat.value > -0.75, choices
        assert flat.low > -1, choices
    steep = gmm.mse_rate(tree, kernel="rule", task="Z")
    assert steep.value < -1.15
    assert steep.high - steep.low > 0.7


def test_few_trials_carry_the_error(tree):
    assert in_page(
        PAGE,
        "the worst 5 % of the trials have more than half of the square error of "
        "$\\mathbb{E}[x^2]$; with the tuned kernel they have a third, with exact draws a fifth.",
    )

    def worst(method):
        errors = np.sort(gmm.square_errors(tree, "easy", method, "E[x²]")[1][-1])[::-1]
        return errors[: len(errors) // 20].sum() / errors.sum()

    assert worst("steinis") > 0.5
    assert worst("steinis-wide") == pytest.approx(1 / 3, abs=0.03)
    assert worst("direct") == pytest.approx(1 / 5, abs=0.03)


def test_the_printed_bandwidth_is_never_near(tree):
    assert in_page(
        PAGE,
        "With the printed bandwidth SteinIS is not near exact sampling on any of the four kinds of "
        "mixture; on mild ones it comes closest, with about twice the error.",
    )
    found = {kind: to_direct(tree, kind, "steinis") for kind in KINDS}
    assert all(estimate.value > 1.5 and estimate.low > 1.2 for estimate in found.values())
    assert found["mild"].value == pytest.approx(2, abs=0.2)
    assert found["mild"].high < min(found[kind].low for kind in KINDS if kind != "mild")


def test_a_fixed_mixture_does_not_help_by_itself(tree):
    assert in_page(
        PAGE,
        "the fixed one is as far from exact sampling as easy ones drawn at random. On each kind of "
        "mixture the tuned kernel is closer than the printed one. Twice the printed bandwidth is "
        "not enough to come near.",
    )
    fixed, easy = (to_direct(tree, kind, "steinis") for kind in ("fixed", "easy"))
    assert fixed.low < easy.value < fixed.high
    for kind in KINDS:
        assert gmm.compare(tree, kind, "steinis-wide", "steinis", EXPECTATIONS).high < 1, kind
        double = to_direct(tree, kind, "steinis-double")
        assert double.low > 1.2, kind
        assert double.value > 1.5, kind


def test_the_readings_that_come_near(tree):
    assert in_page(
        PAGE,
        "The three readings in which SteinIS comes nearest to exact sampling have a tuned kernel. "
        "One is on mild mixtures, one on the fixed mixture, and one takes the cosines alone. The "
        "means alone are at the border of our range, and second moments, which feel the tails of "
        "the target most, are farther off.",
    )
    values = {
        reading.name: gmm.steinis_near_direct(tree, **reading.choices).value
        for reading in claim_of("steinis-near-direct").readings
    }
    nearest = sorted(values, key=values.get)
    assert set(nearest[:3]) == {"mild mixtures", "one fixed mixture", "cosines alone"}
    assert values[nearest[2]] < 1.5
    assert values["means alone"] == pytest.approx(1.5, abs=0.05)
    assert values["second moments alone"] > 1.8
    for choices in ({"target": "mild"}, {"target": "fixed"}, {"task": "E[cos(wx+b)]"}):
        best = gmm.steinis_near_direct(tree, **choices).value
        tuned = (gmm.steinis_near_direct(tree, kernel=k, **choices) for k in ("wide", "adagrad"))
        assert any(best == pytest.approx(estimate.value) for estimate in tuned)


def test_svgd_beside_exact_draws(tree):
    assert in_page(
        PAGE,
        "On easy mixtures its plain averages are even better than those of as many exact draws, "
        "because particles that repel each other are spread more evenly than independent ones; on "
        "hard mixtures they are worse than exact draws.",
    )
    for task in EXPECTATIONS:
        assert gmm.compare(tree, "easy", "svgd", "direct", (task,)).high < 1, task
        assert gmm.compare(tree, "hard", "svgd", "direct", (task,)).low > 1, task


def test_svgd_is_similar_where_steinis_is_far(tree):
    assert in_page(
        PAGE,
        "The two have about the same error in two readings, and in both of them SteinIS is far "
        "from exact sampling: with the printed bandwidth for both, and on hard mixtures.",
    )
    found = {
        reading.name: gmm.svgd_near_steinis(tree, **reading.choices)
        for reading in claim_of("svgd-near-steinis").readings
    }
    similar = {"both with the printed bandwidth", "hard mixtures"}
    assert {name for name, ratio in found.items() if ratio.low < 1 < ratio.high} == similar
    assert {name for name, ratio in found.items() if 0.67 < ratio.value < 1.5} == similar
    assert gmm.steinis_near_direct(tree, kernel="rule").low > 3
    assert gmm.steinis_near_direct(tree, target="hard").low > 3


def test_weights_let_the_error_go_on_falling(tree):
    assert in_page(
        PAGE,
        "Without weights the error of $\\mathbb{E}[x^2]$ hardly falls from 200 followers on. With "
        "weights it goes on falling.",
    )
    for kind in MIXTURES:
        slopes = []
        for variable in ("error_unweighted", "error"):
            found = gmm.square_errors(tree, kind, "steinis-wide", "E[x²]", variable=variable)
            late = found[0] >= 200
            errors = [e for e, kept in zip(found[1], late, strict=True) if kept]
            slopes.append(gmm.slope(found[0][late], errors))
        plain, weighted = slopes
        assert plain.value > -0.2
        assert plain.low > -0.3
        assert weighted.value < -0.45
        assert weighted.high < plain.low


def test_the_bias_of_path_integration(tree):
    assert in_page(PAGE, "With up to 100 particles $\\hat Z$ is too large on average.")
    assert in_page(
        PAGE, "with up to 100 particles $\\hat Z$ is too small on average, by far on hard mixtures."
    )
    for kind in MIXTURES:
        for n in (10, 20, 50, 100):
            z = np.exp(tree[label(kind, "svgd", n)].to_dataset().log_z.isel(size=0))
            assert mean(z.sel(statistic="v").values).low > 1, (kind, n)
            u = mean(z.sel(statistic="u").values)
            assert u.high < (1 if kind == "easy" else 0.05), (kind, n)


def test_where_path_integration_is_worse(tree):
    assert in_page(
        PAGE,
        "Path integration is worse than SteinIS with a tuned kernel on easy, mild and fixed "
        "mixtures, with either statistic on easy ones.",
    )
    for kind in ("easy", "mild", "fixed"):
        assert gmm.path_integration_worse(tree, kernel="wide", target=kind).low > 1
    assert gmm.path_integration_worse(tree, kernel="wide", statistic="u").low > 1


def test_where_path_integration_is_not_worse(tree):
    assert in_page(
        PAGE,
        "With the printed bandwidth for both, the data do not show that it is worse. On hard "
        "mixtures it gains on SteinIS with the number of particles, and at 200 its error is the "
        "smaller one, in 25 runs.",
    )
    printed = gmm.path_integration_worse(tree, kernel="rule")
    assert printed.value < 1
    sizes = (10, 20, 50, 100, 200)
    ratios = [gmm.path_integration_worse(tree, kernel="wide", target="hard", size=n) for n in sizes]
    assert [r.value for r in ratios] == sorted((r.value for r in ratios), reverse=True)
    assert ratios[0].low > max(1, ratios[-1].high)
    assert ratios[-1].value < 0.5
    assert gmm.path_integration_worse(tree, target="hard", size=200).value < 0.5
    assert tree[label("hard", "svgd", 200)].sizes["trial"] == 25


def test_path_integration_is_worse_in_all_readings_but_one(tree):
    """The cell under "What this means" says so."""
    not_worse = {
        reading.name
        for reading in claim_of("path-integration-worse").readings
        if gmm.path_integration_worse(tree, **reading.choices).value <= 1
    }
    assert not_worse == {"both with the printed bandwidth"}


def test_the_tail_index_warns_in_a_minority(tree):
    assert in_page(
        PAGE,
        "Pareto-$\\hat k$ warns in a minority of the trials, and in fewer than on easy mixtures.",
    )
    hard, easy = (
        share(tree[label(kind, "steinis-wide")].pareto_k.values > 0.7) for kind in ("hard", "easy")
    )
    assert hard.high < 0.5
    assert hard.high < easy.low


def test_no_setting_makes_all_statements_true(tree):
    assert in_page(
        PAGE,
        "No setting that we tried makes all four statements true. With a tuned, wide kernel on "
        "mild mixtures or on one fixed mixture, the numbers for three of them lie in the ranges "
        "that we count as reproduced: the rate, the closeness to exact sampling, and that path "
        "integration does worse.",
    )
    assert in_page(PAGE, "There SVGD has less than a fifth of the error of SteinIS.")
    statistics = {
        "mse-rate": gmm.mse_rate,
        "steinis-near-direct": gmm.steinis_near_direct,
        "svgd-near-steinis": gmm.svgd_near_steinis,
        "path-integration-worse": gmm.path_integration_worse,
    }
    for kind, kernel in (("easy", "rule"), *((kind, "wide") for kind in KINDS)):
        outside = set()
        for name, statistic in statistics.items():
            (low, high), _ = claim_of(name).ranges_of()
            if not low <= statistic(tree, kernel=kernel, target=kind).value <= high:
                outside.add(name)
        assert outside, (kind, kernel)
        if kind in ("mild", "fixed"):
            assert outside == {"svgd-near-steinis"}
            assert gmm.svgd_near_steinis(tree, kernel="wide", target=kind).high < 0.2


def test_hais_is_as_good_as_exact_sampling(tree):
    assert in_page(
        PAGE,
        "The data show no difference on expectations between HAIS-1L with full refresh and exact "
        "sampling, on any of the four kinds of mixture.",
    )
    for kind in KINDS:
        found = to_direct(tree, kind, "hais-full")
        assert found.low < 1 < found.high, kind


def test_large_sizes_of_svgd_have_fewer_trials(tree):
    p = gmm.GMMEstimation.model_validate_json(tree.attrs["parameters"])
    for kind in MIXTURES:
        for n in p.interacting_sizes:
            expected = interacting_trials(p, n, kind)
            assert tree[label(kind, "svgd", n)].sizes["trial"] == expected
