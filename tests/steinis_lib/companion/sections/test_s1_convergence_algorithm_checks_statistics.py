import json
import math

import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.intervals import mean
from steinis_lib.companion.sections.s1_convergence import algorithm_checks_statistics as checks

EPSILON = np.array([0.005, 0.01, 0.02, 0.04, 0.08])


def tree(threshold=0.8, **groups):
    whole = xr.DataTree.from_dict(
        {
            name.replace("_", "-"): xr.Dataset({k: ("trial", v) for k, v in variables.items()})
            for name, variables in groups.items()
        }
    )
    whole.attrs["parameters"] = json.dumps({"ess_threshold": threshold})
    return whole


@pytest.mark.parametrize("power", [1, 2, 2.5, 3])
def test_the_exponent_of_a_power_law_is_found(power):
    """Each trial has a factor of its own, which must not matter."""
    factors = np.random.default_rng(0).lognormal(size=(50, 1))
    data = xr.Dataset(
        {"error": (("trial", "epsilon"), factors * EPSILON**power)}, coords={"epsilon": EPSILON}
    )
    found = checks.determinant_order(xr.DataTree.from_dict({"determinant": data}))
    assert found.value == pytest.approx(power)
    assert found.high - found.low < 1e-9


def test_the_exponent_is_a_mean_over_trials_with_its_interval():
    powers = np.random.default_rng(1).normal(2, 0.1, 40)
    data = xr.Dataset(
        {"error": (("trial", "epsilon"), EPSILON ** powers[:, None])}, coords={"epsilon": EPSILON}
    )
    found = checks.determinant_order(xr.DataTree.from_dict({"determinant": data}))
    expected = mean(powers)
    assert (found.value, found.low, found.high) == pytest.approx(
        (expected.value, expected.low, expected.high)
    )


def test_the_bias_of_z_is_in_per_cent():
    found = checks.z_unbiased(tree(unbiased_exact={"log_z": np.log([1.0, 1.04, 0.97, 1.03])}))
    assert found.value == pytest.approx(1.0)
    assert found.low < 1 < found.high


def test_z_and_not_its_logarithm_is_averaged():
    """log Ẑ is biased even where Ẑ is not."""
    found = checks.z_unbiased(tree(unbiased_exact={"log_z": np.log([0.5, 1.5])}))
    assert found.value == pytest.approx(0)


def test_the_first_order_shift_is_taken_in_pairs():
    exact = np.array([1.0, -2.0, 0.5])
    whole = tree(unbiased_exact={"log_z": exact}, unbiased_first_order={"log_z": exact - 0.25})
    found = checks.first_order_shift(whole)
    assert (found.value, found.low, found.high) == pytest.approx((-0.25, -0.25, -0.25))


def test_continuing_is_judged_by_the_worst_trial():
    found = checks.continuing_is_free(tree(continuing={"difference": np.array([0.0, 1e-9, 0.0])}))
    assert found.value == found.low == found.high == 1e-9


def test_a_difference_that_is_nan_is_not_hidden():
    found = checks.continuing_is_free(tree(continuing={"difference": np.array([0.0, np.nan])}))
    assert math.isnan(found.value)


def test_coverage_counts_trials_within_two_of_their_own_errors():
    log_z = np.array([0.19, -0.19, 0.21, -0.21, 0.19, -0.021])
    errors = np.array([0.1, 0.1, 0.1, 0.1, 0.01, 0.01])
    stopping = {"ess": np.full(6, 0.9), "log_z": log_z, "log_z_se": errors}
    assert checks.stopping(tree(stopping=stopping)).value == pytest.approx(2 / 6)


def test_only_trials_that_reached_the_threshold_count():
    stopping = {
        "ess": np.array([0.8, 0.81, 0.79, 0.1]),
        "log_z": np.array([0.0, 1.0, 0.0, 0.0]),
        "log_z_se": np.full(4, 0.1),
    }
    assert checks.stopping(tree(stopping=stopping)).value == 0.5
    assert checks.stopping(tree(0.1, stopping=stopping)).value == 0.75
    assert checks.threshold(tree(0.1, stopping=stopping)) == 0.1


def test_if_no_trial_reached_the_threshold_the_error_says_so():
    stopping = {"ess": np.full(3, 0.1), "log_z": np.zeros(3), "log_z_se": np.ones(3)}
    with pytest.raises(ValueError, match="ESS"):
        checks.stopping(tree(stopping=stopping))


def test_readings_of_stopping():
    stopping = {
        "ess": np.array([0.9, 0.9, 0.1]),
        "log_z": np.array([0.15, -0.25, 0.9]),
        "log_z_se": np.full(3, 0.1),
    }
    data = tree(stopping=stopping)
    for errors, expected in ((1, 0), (2, 0.5), (3, 1)):
        assert checks.stopping(data, errors=errors).value == expected
    assert checks.stopping(data, trials="all").value == pytest.approx(1 / 3)
    by_hand = np.sqrt((0.15**2 + 0.25**2) / 2) / 0.1
    assert checks.stopping(data, measure="ratio").value == pytest.approx(by_hand)


def test_readings_of_the_bias_of_z():
    data = tree(
        unbiased_exact={"log_z": np.log([1.0, 1.02])},
        unbiased_first_order={"log_z": np.log([1.1, 1.3])},
        stopping={"log_z": np.log([0.9, 0.8])},
    )
    assert checks.z_unbiased(data).value == pytest.approx(1)
    assert checks.z_unbiased(data, determinant="first-order").value == pytest.approx(20)
    assert checks.z_unbiased(data, transitions="by ESS").value == pytest.approx(-15)


def test_the_order_at_small_and_at_large_steps():
    """An error of order one at small steps and of order three at large ones."""
    error = np.where(EPSILON < 0.015, EPSILON, EPSILON**3)
    data = xr.Dataset(
        {"error": (("trial", "epsilon"), np.stack([error] * 3))}, coords={"epsilon": EPSILON}
    )
    whole = xr.DataTree.from_dict({"determinant": data})
    assert checks.determinant_order(whole, steps="smallest").value == pytest.approx(1)
    assert checks.determinant_order(whole, steps="largest").value == pytest.approx(3)
