"""What the page on convergence says in words, checked against the stored results."""

import numpy as np
import pytest
from prose import in_page, result

from steinis_lib.companion.intervals import median, share
from steinis_lib.companion.sections.s1_convergence import algorithm_checks_statistics as checks
from steinis_lib.companion.sections.s1_convergence import statistics as gmm

PAGE = "01_gmm_convergence.ipynb"
FINITE = ("steinis", "svgd", "steinis-wide", "svgd-wide")


@pytest.fixture(scope="module")
def data():
    return result("gmm-convergence")


def steady(group, variable):
    return median(gmm.steady_decades(group[variable].values, group.time.values))


def rate(group, variable, first, last):
    """Median over trials of the rate of decay between two times."""
    at = group[variable].sel(time=[first, last], method="nearest").values
    return median(np.log(at[:, 0] / at[:, 1]) / (last - first))


def test_the_particles_that_build_the_maps(data):
    assert in_page(
        PAGE,
        "what falls at a steady rate is the discrepancy of the particles that build the maps, in "
        "SteinIS and in SVGD.",
    )
    for name in FINITE:
        assert steady(data[name], "ksd2_leaders").low > 1, name


def test_kl_of_finite_systems(data):
    assert in_page(
        PAGE,
        "With finitely many particles it falls by less than a decade at a steady rate and then "
        "levels off.",
    )
    for name in FINITE:
        assert steady(data[name], "kl").high < 1, name
        early, late = rate(data[name], "kl", 0, 15), rate(data[name], "kl", 45, 60)
        assert late.high < early.low / 5, name


def test_the_mean_field_keeps_its_rate_for_a_decade(data):
    assert in_page(
        PAGE,
        "Only the mean field, with the printed bandwidth, keeps up a steady rate for a decade.",
    )
    assert steady(data["mean-field"], "kl").low > 1
    assert steady(data["mean-field-wide"], "kl").high < 1


def test_kl_rises_with_200_leaders(data):
    assert in_page(
        PAGE,
        "with the 200 leaders of Figure 2 and the printed bandwidth it rises in a minority of "
        "trials by $t = 60$, and in all of them by $t = 200$.",
    )
    short, long = data["steinis"], result("convergence-readings")["steinis-long"]
    assert data.attrs["parameters"].count('"n_leaders":200') == 1
    assert short.time.values[-1] == pytest.approx(60)
    assert long.time.values[-1] == pytest.approx(200)
    rising = share(gmm.rises(short.kl.values))
    assert rising.low > 0
    assert rising.value < 0.5
    assert gmm.rises(long.kl.values).all()


def test_more_transitions_do_not_get_below_the_floor(data):
    assert in_page(
        PAGE,
        "more transitions do not get below it, and with 200 leaders a run that is three times as "
        "long ends higher than the short one.",
    )
    long = result("convergence-readings")["steinis-long"]
    ends = long.kl.sel(time=[60, 200], method="nearest").values
    assert median(ends[:, 1] - ends[:, 0]).low > 0
    floors = [median(group.kl.values.min(1)) for _, group in gmm.by_leader_count(data)]
    assert all(more.high < fewer.low for fewer, more in zip(floors, floors[1:], strict=False))


def test_the_mean_field_slows_down_too(data):
    assert in_page(PAGE, "Even the mean field has no single rate")
    for name in ("mean-field", "mean-field-wide"):
        assert rate(data[name], "kl", 30, 60).high < rate(data[name], "kl", 0, 30).low


def test_whose_discrepancy_falls(data):
    assert in_page(
        PAGE,
        "SVGD drives the discrepancy of *its own particles* down, and so do the leaders of SteinIS",
    )
    assert in_page(PAGE, "depends on which density or particles it is measured for.")
    for name in ("svgd", "steinis"):
        group = data[name]
        fell = {v: group[v].values[:, 0] / group[v].values[:, -1] for v in ("ksd2", "ksd2_leaders")}
        assert median(fell["ksd2_leaders"]).low > 10 * median(fell["ksd2"]).high


def test_the_law_of_finitely_many_leaders(data):
    assert in_page(PAGE, "its slope is not $-\\mathrm{KSD}^2$ but minus the mean of")
    group = data["steinis"].to_dataset()
    assert median(gmm.rate_mismatch(group, "ksd2_cross")).high < 0.05
    assert median(gmm.rate_mismatch(group, "ksd2")).low > 0.5


def test_kl_rises_while_the_leaders_look_ever_better(data):
    assert in_page(
        PAGE, "since it can rise again while the discrepancy of the leaders still falls."
    )
    for m, group in gmm.by_leader_count(data):
        if m <= 100:
            kl, leaders = group.kl.values, group.ksd2_leaders.values
            assert median(kl[:, -1] / kl.min(1)).low > 1, m
            assert median(leaders[:, -1] / leaders.min(1)).value == pytest.approx(1), m


def test_the_estimate_of_z_is_unbiased(data):
    assert in_page(PAGE, "whatever the KL, $\\hat Z$ stays unbiased after a number of transitions")
    bias = checks.z_unbiased(result("algorithm-checks"))
    assert bias.low < 0 < bias.high
    assert max(-bias.low, bias.high) < 1  # per cent
    assert all(float(node.folds.isel(time=-1).sum()) == 0 for node in data.children.values())
