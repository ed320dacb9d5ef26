import json

import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.sections.s1_convergence import statistics as gmm

TIME = np.linspace(0, 60, 61)
LOG10 = np.log(10)


def curves(*rows):
    return np.stack([np.broadcast_to(row, TIME.shape) for row in rows])


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 40.0])
def test_an_exponential_scores_all_the_decades_it_covers(rate, scale):
    found = gmm.steady_decades(curves(scale * np.exp(-rate * TIME)), TIME)
    np.testing.assert_allclose(found, rate * 60 / LOG10)


def test_of_two_rates_the_longer_fall_counts_and_similar_rates_count_as_one():
    """From e^-t to e^-0.3t the rate more than halves, at t = 5 or at t = 50; to e^-0.6t, not."""
    early, late = np.minimum(TIME, 5), np.minimum(TIME, 50)
    found = gmm.steady_decades(
        curves(
            np.exp(-early - 0.3 * (TIME - early)),
            np.exp(-late - 0.3 * (TIME - late)),
            np.exp(-early - 0.6 * (TIME - early)),
        ),
        TIME,
    )
    np.testing.assert_allclose(found, np.array([0.3 * 55, 50, 5 + 0.6 * 55]) / LOG10)


def test_a_floor_ends_the_decay():
    found = gmm.steady_decades(curves(np.exp(-TIME) + 1e-3), TIME)
    assert 2.3 < found[0] < 3


@pytest.mark.parametrize("power", [0.5, 1, 2])
def test_a_power_law_scores_until_its_rate_has_halved(power):
    """d log (1 + t)^-p / dt = -p / (1 + t) halves at t = 1."""
    time = np.linspace(0, 60, 2401)
    found = gmm.steady_decades((1 + time[None]) ** -power, time)
    np.testing.assert_allclose(found, power * np.log10(2), rtol=0.05)


def test_a_slow_start_is_not_held_against_a_curve():
    found = gmm.steady_decades(curves(1 / (1 + np.exp(TIME - 10))), TIME)
    np.testing.assert_allclose(found, 50 / LOG10, rtol=0.02)


def test_a_rise_before_the_peak_is_left_out():
    hump = np.where(TIME < 10, 0.2 + 0.08 * TIME, np.exp(-0.1 * (TIME - 10)))
    np.testing.assert_allclose(gmm.steady_decades(curves(hump), TIME), 5 / LOG10)
    rate, r_squared, reached = gmm.first_decade(curves(hump), TIME)
    np.testing.assert_allclose(rate, 0.1)
    np.testing.assert_allclose(r_squared, 1)
    assert reached.all()


def test_a_curve_that_does_not_fall_scores_nothing():
    found = gmm.steady_decades(curves(0.3, np.exp(0.1 * TIME), 1 + TIME), TIME)
    np.testing.assert_array_equal(found, 0)


def test_a_curve_that_reaches_zero_has_a_finite_score():
    found = gmm.steady_decades(curves(np.where(TIME < 30, np.exp(-TIME), 0.0)), TIME)
    assert np.isfinite(found).all()


def test_decades_do_not_depend_on_the_unit_of_time():
    curve = curves(np.exp(-0.1 * TIME) + 0.02)
    np.testing.assert_allclose(
        gmm.steady_decades(curve, TIME), gmm.steady_decades(curve, 100 * TIME)
    )


def test_uneven_times_are_taken_into_account():
    time = np.array([0, 1, 2, 4, 8, 16, 32.0])
    np.testing.assert_allclose(gmm.steady_decades(np.exp(-time)[None], time), 32 / LOG10)
    np.testing.assert_allclose(gmm.first_decade(np.exp(-time)[None], time)[0], 1)


@pytest.mark.parametrize("rate", [0.05, 0.3, 3.0])
def test_the_first_decade_of_an_exponential_has_its_rate_and_is_straight(rate):
    found, r_squared, reached = gmm.first_decade(curves(7 * np.exp(-rate * TIME)), TIME)
    np.testing.assert_allclose(found, rate)
    np.testing.assert_allclose(r_squared, 1)
    assert reached.all()


def test_the_fit_ends_where_the_curve_has_fallen_tenfold():
    """What follows the first decade does not matter; what happens within it does."""
    kink = np.minimum(TIME, 12)
    late = np.exp(-0.2 * kink - 0.01 * (TIME - kink))  # tenfold fall at t = 11.5
    kink = np.minimum(TIME, 5)
    early = np.exp(-0.2 * kink - 0.04 * (TIME - kink))
    rate, r_squared, reached = gmm.first_decade(curves(late, early), TIME)
    assert reached.all()
    np.testing.assert_allclose(rate[0], 0.2)
    np.testing.assert_allclose(r_squared[0], 1)
    assert 0.04 < rate[1] < 0.2
    assert r_squared[1] < 0.97


def test_a_curve_that_never_falls_tenfold_is_fitted_whole_and_said_so():
    rate, r_squared, reached = gmm.first_decade(curves(np.exp(-0.03 * TIME), 0.3), TIME)
    np.testing.assert_allclose(rate, [0.03, 0], atol=1e-12)
    np.testing.assert_allclose(r_squared[0], 1)
    assert not reached.any()


def test_r_squared_is_the_textbooks():
    noisy = np.exp(-0.01 * TIME + 0.1 * np.sin(3 * TIME))
    start = int(noisy.argmax())
    _, r_squared, reached = gmm.first_decade(noisy[None], TIME)
    assert not reached[0]
    r = np.corrcoef(TIME[start:], np.log(noisy[start:]))[0, 1]
    np.testing.assert_allclose(r_squared[0], r**2)


def test_rises_by_more_than_the_tolerance_over_the_smallest_value_so_far():
    falling = np.exp(-TIME)
    below, above = (np.where(TIME > 30, np.exp(-30.0) * (1 + s), falling) for s in (9e-4, 1.1e-3))
    late = np.where(TIME == 60, 1.0, falling)
    # Small steps up that add up: what counts is the smallest value so far, not the last one.
    creeping = np.where(TIME > 30, np.exp(-30.0) * (1 + 2e-4 * (TIME - 30)), falling)
    rows = curves(falling, 0.3, below, above, late, creeping, 0.0, 1 + TIME)
    assert gmm.rises(rows).tolist() == [False, False, False, True, True, True, False, True]


def test_a_curve_with_a_nan_is_not_called_monotone():
    """A comparison with NaN is never true; this must not be taken for "never rises"."""
    broken = np.exp(-TIME)
    broken[10] = np.nan
    tree = synthetic_tree(kl=curves(broken, np.exp(-TIME)))
    for statistic in (gmm.kl_monotone_mean_field, gmm.kl_monotone_followers):
        with pytest.raises(ValueError, match="holds NaN"):
            statistic(tree)


def group(**variables):
    return xr.Dataset(
        {name: (("trial", "time"), np.atleast_2d(v)) for name, v in variables.items()},
        coords={"time": TIME},
    )


def test_the_rate_mismatch_is_zero_for_the_identity_and_a_fraction_otherwise():
    d = np.exp(-0.1 * TIME)
    rows = group(kl_rate=curves(-d, -1.25 * d, 0 * d, d), ksd2=curves(d, d, d, d))
    np.testing.assert_allclose(gmm.rate_mismatch(rows, "ksd2"), [0, 0.25, 1, 2], atol=1e-12)


def test_the_rate_mismatch_compares_with_a_candidate_that_changes_sign():
    d = np.cos(TIME)
    rows = group(kl_rate=curves(-d, 0 * d), ksd2_cross=curves(d, d))
    np.testing.assert_allclose(gmm.rate_mismatch(rows, "ksd2_cross"), [0, 1], atol=1e-12)


def test_the_rate_mismatch_weighs_times_by_their_distance():
    time = np.array([0.0, 1.0, 11.0])
    data = xr.Dataset(
        {
            "kl_rate": (("trial", "time"), [[0.0, -1.0, -1.0]]),
            "ksd2": (("trial", "time"), [[1.0] * 3]),
        },
        coords={"time": time},
    )
    np.testing.assert_allclose(gmm.rate_mismatch(data, "ksd2"), 0.5 / 11)


def synthetic_tree(kl, n_leaders=200, counts=(25, 400)):
    names = ["steinis", "mean-field", "svgd", *(f"leaders-{m}" for m in counts)]
    tree = xr.DataTree.from_dict({name: group(kl=kl) for name in names})
    tree.attrs["parameters"] = json.dumps({"n_leaders": n_leaders, "leader_counts": counts})
    return tree


def test_conditions_are_ordered_by_their_number_of_leaders():
    tree = synthetic_tree(curves(np.exp(-TIME)), counts=(25, 1000, 400, 50))
    tree["steinis"] = xr.DataTree(group(kl=2 * curves(np.exp(-TIME))))
    found = gmm.by_leader_count(tree)
    assert [m for m, _ in found] == [25, 50, 200, 400, 1000]
    assert [float(g.kl[0, 0]) for _, g in found] == [1, 1, 2, 1, 1]


def test_the_share_that_rises_is_over_all_numbers_of_leaders():
    tree = synthetic_tree(curves(*[np.exp(-TIME)] * 10))
    tree["leaders-25"] = xr.DataTree(group(kl=curves(*[1 + TIME] * 10)))
    assert gmm.kl_monotone_followers(tree).value == pytest.approx(1 / 3)
    assert gmm.kl_monotone_mean_field(tree).value == 0


def test_each_statistic_reads_its_own_curves():
    """Every curve has its own number of decades, and each statistic must find its own."""
    names = ("steinis", "svgd", "mean-field")
    decades = {
        (name, variable): 1 + i + 3 * j
        for i, name in enumerate(names)
        for j, variable in enumerate(("kl", "ksd2", "ksd2_leaders", "ksd2_followers"))
    }
    tree = xr.DataTree.from_dict(
        {
            name: group(
                **{
                    variable: curves(10 ** (-d * TIME / 60))
                    for (n, variable), d in decades.items()
                    if n == name
                }
            )
            for name in names
        }
    )
    expected = {
        gmm.kl_exponential_steinis: ("steinis", "kl"),
        gmm.kl_exponential_svgd: ("svgd", "kl"),
        gmm.ksd_exponential_steinis: ("steinis", "ksd2"),
        gmm.ksd_exponential_svgd: ("svgd", "ksd2_leaders"),
    }
    for statistic, key in expected.items():
        assert statistic(tree).value == pytest.approx(decades[key])


def test_the_rate_statistics_read_the_mean_field_and_the_followers():
    d = np.exp(-0.1 * TIME)
    tree = xr.DataTree.from_dict(
        {
            "mean-field": group(kl_rate=curves(-1.1 * d), ksd2=curves(d)),
            "steinis": group(kl_rate=curves(-1.4 * d), ksd2=curves(d)),
        }
    )
    assert gmm.kl_rate_is_ksd(tree).value == pytest.approx(0.1)
    assert gmm.kl_rate_is_ksd_followers(tree).value == pytest.approx(0.4)
