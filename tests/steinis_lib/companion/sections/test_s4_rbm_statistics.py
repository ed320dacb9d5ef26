import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.sections.s4_rbm import statistics as rbm
from steinis_lib.companion.sections.s4_rbm.experiment import RBMPartition


def group(scale, rng, trials=300, transitions=(50, 100), bias=0.0):
    error = bias + scale * rng.standard_normal((trials, len(transitions)))
    return xr.Dataset(
        {"error": (("trial", "transitions"), error)},
        coords={"trial": range(trials), "transitions": list(transitions)},
    )


def tree(**scales):
    rng = np.random.default_rng(8)
    groups = {}
    for dim in (10, 100):
        groups[f"standard-is-{dim}"] = group(9.0, rng, transitions=(0,))
        for name, scale in scales.items():
            method = name.replace("_", "-")
            groups[f"standard-{method}-{dim}"] = group(scale if dim == 100 else 77.0, rng)
    found = xr.DataTree.from_dict(groups)
    found.attrs["parameters"] = RBMPartition(dims=(10, 100)).model_dump_json()
    return found


def test_root_mean_square_and_median_against_known_errors():
    values = group(2.0, np.random.default_rng(1), trials=4000, bias=1.0).error.values
    value, low, high = rbm.rmse(values)
    assert (low < np.sqrt(5)).all() and (np.sqrt(5) < high).all()
    assert np.allclose(value, np.sqrt((values**2).mean(0)))
    value, low, high = rbm.median_error(np.abs(group(2.0, np.random.default_rng(2)).error.values))
    assert ((low < 0.6745 * 2) & (high > 0.6745 * 2)).all()  # the median of |N(0, 2²)|


def test_ratio_is_over_the_largest_dimension_and_the_common_transitions():
    data = tree(steinis=3.0, hais_1l=1.0)
    found = rbm.rmse_ratio(data, "steinis", "hais-1l")
    assert found.low < 3 < found.high
    assert found.high / found.low < 1.4
    longer = group(3.0, np.random.default_rng(4), transitions=(50, 100, 200), trials=40)
    data["standard-steinis-100"] = xr.DataTree(longer)
    again = rbm.rmse_ratio(data, "steinis", "hais-1l")
    by_hand = np.sqrt(
        (longer.error.values[:, :2] ** 2).mean(0)
        / (data["standard-hais-1l-100"].error.values[:40] ** 2).mean(0)
    )
    assert again.value == pytest.approx(np.sqrt(by_hand.prod()))


@pytest.mark.slow
def test_claims_take_the_better_variant():
    data = tree(steinis=30.0, steinis_wide=2.0, hais_1l=1.0, ais=9.0, ais_unadjusted=6.0)
    assert rbm.steinis_to_hais(data).value == pytest.approx(2, rel=0.1)
    assert rbm.ais_to_hais(data).value == pytest.approx(6, rel=0.1)
    assert rbm.ais_to_slower(data).value == pytest.approx(3, rel=0.1)  # against SteinIS, wide
    fast = tree(steinis=30.0, steinis_wide=0.5, hais_1l=1.0, ais=2.0, ais_unadjusted=6.0)
    assert rbm.ais_to_slower(fast).value == pytest.approx(2, rel=0.1)  # against HAIS-1L


def test_dims_are_read_from_the_result():
    assert rbm.dims(tree(steinis=1.0)) == [10, 100]
