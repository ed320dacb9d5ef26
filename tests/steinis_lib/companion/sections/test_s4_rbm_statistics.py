import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.reading_claims import judge
from steinis_lib.companion.sections.s4_rbm import statistics as rbm
from steinis_lib.companion.sections.s4_rbm.experiment import BETWEEN, METHODS
from steinis_lib.companion.sections.s4_rbm.problem import RBMPartition

MUCH_SLOWER = (1.5, np.inf), (1, np.inf)
NOT_WORSE = (0, 1), (0, 1.25)


def group(scale, rng, trials=100, transitions=(50, 100), bias=0.0):
    error = bias + scale * rng.standard_normal((trials, len(transitions)))
    return xr.Dataset(
        {"error": (("trial", "transitions"), error)},
        coords={"trial": range(trials), "transitions": list(transitions)},
    )


def tree(seed=8, trials=100, **scales):
    """Errors of the given size after any number of transitions, 20 unless it is given.

    As in the experiment, only SteinIS has all numbers of transitions at the smaller d.
    """
    rng, groups = np.random.default_rng(seed), {}
    for dim in (10, 50, 100):
        for method in METHODS if dim != 50 else BETWEEN:
            scale = scales.get(method.replace("-", "_"), 20.0)
            if isinstance(scale, dict):
                scale = scale[dim]
            every = dim == 100 or method.startswith("steinis")
            numbers = (0,) if method == "is" else (50, 100) if every else (100,)
            groups[f"standard-{method}-{dim}"] = group(scale, rng, trials, numbers)
    found = xr.DataTree.from_dict(groups)
    found.attrs["parameters"] = RBMPartition(
        dims=(10, 100), dims_between=(50,), transitions=(50, 100)
    ).model_dump_json()
    return found


def test_root_mean_square_and_median_against_known_errors():
    values = group(2.0, np.random.default_rng(1), trials=4000, bias=1.0).error.values
    value, low, high = rbm.rmse(values)
    assert (low < np.sqrt(5)).all() and (np.sqrt(5) < high).all()
    assert np.allclose(value, np.sqrt((values**2).mean(0)))
    centred = group(2.0, np.random.default_rng(2), trials=300).error.values
    value, low, high = rbm.median_error(np.abs(centred))
    assert ((low < 0.6745 * 2) & (high > 0.6745 * 2)).all()  # the median of |N(0, 2²)|


def test_measures_of_errors_by_hand():
    errors = np.array([[-4.0], [0.0], [3.0], [0.4]])
    by_hand = {"rmse": np.sqrt(25.16 / 4), "median": 1.7, "mean": 0.15, "missed": 2.5 / 5}
    for name, value in by_hand.items():
        assert rbm.MEASURES[name](errors) == pytest.approx(value), name


def test_ratio_is_over_the_largest_dimension_and_the_common_transitions():
    data = tree(steinis={10: 77.0, 50: 77.0, 100: 3.0}, hais_1l=1.0)
    found = rbm.steinis_to_hais(data, kernel="rule")
    assert found.low < 3 < found.high
    assert found.high / found.low < 1.6
    longer = group(3.0, np.random.default_rng(4), transitions=(50, 100, 200), trials=40)
    data["standard-steinis-100"] = xr.DataTree(longer)
    theirs = data["standard-hais-1l-100"].error.values[:40]
    by_hand = np.sqrt((longer.error.values[:, :2] ** 2).mean(0) / (theirs**2).mean(0))
    again = rbm.steinis_to_hais(data, kernel="rule")
    assert again.value == pytest.approx(np.sqrt(by_hand.prod()))
    for transitions, value in ((50, by_hand[0]), ("last", by_hand[1]), ("best", min(by_hand))):
        found = rbm.steinis_to_hais(data, kernel="rule", transitions=transitions)
        assert found.value == pytest.approx(value), transitions


def test_trials_are_resampled_in_pairs():
    """Two methods with the same errors, up to a factor, have that ratio in every resample."""
    data = tree(hais_1l=1.0)
    twice = data["standard-hais-1l-100"].to_dataset().assign(
        error=lambda g: 2 * g.error
    )  # fmt: skip
    data["standard-steinis-100"] = xr.DataTree(twice)
    found = rbm.steinis_to_hais(data, kernel="rule")
    assert (found.low, found.high) == pytest.approx((2, 2))


@pytest.mark.parametrize(
    ("kernel", "value"),
    [("rule", 30), ("double", 8), ("wide", 2), ("adagrad", 5), ("leaders", 1), ("better", 2)],
)
def test_kernels(kernel, value):
    data = tree(
        steinis=30.0, steinis_double=8.0, steinis_wide=2.0, steinis_adagrad=5.0,
        steinis_leaders=1.0, hais_1l=1.0,
    )  # fmt: skip
    assert rbm.steinis_to_hais(data, kernel=kernel).value == pytest.approx(value, rel=0.2)


def test_choices_of_annealing():
    data = tree(steinis_wide=3.0, hais_1l=2.0, hais_1l_partial=1.0, ais=12.0, ais_unadjusted=6.0)
    for refresh, value in (("full", 1.5), ("partial", 3)):
        found = rbm.steinis_to_hais(data, refresh=refresh)
        assert found.value == pytest.approx(value, rel=0.2)
    for langevin, value in (("ratio", 6), ("plain", 3), ("better", 3)):
        found = rbm.ais_to_hais(data, langevin=langevin)
        assert found.value == pytest.approx(value, rel=0.2)
    for langevin, value in (("ratio", 4), ("plain", 2), ("better", 2)):
        found = rbm.ais_to_steinis(data, langevin=langevin)
        assert found.value == pytest.approx(value, rel=0.2)
        assert found.low < found.value < found.high
    assert rbm.ais_to_hais(data, refresh="partial").value == pytest.approx(12, rel=0.2)


def test_best_number_of_transitions_is_in_favour_of_the_claim():
    data = tree(hais_1l=1.0, steinis_wide=1.0, ais=1.0)
    data["standard-ais-100"] = xr.DataTree(group(np.array([2.0, 8.0]), np.random.default_rng(1)))
    ratios = [rbm.ais_to_steinis(data, kernel="wide", transitions=k).value for k in (50, 100)]
    best = rbm.ais_to_steinis(data, kernel="wide", transitions="best").value
    assert best == pytest.approx(max(ratios))


def test_across_dimensions():
    data = tree(hais_1l=1.0, steinis_wide={10: 0.5, 50: 9.0, 100: 2.0})
    for d, value in ((10, 0.5), (100, 2), ("worst", 2), ("mean", 1), (50, 9)):
        found = rbm.steinis_to_hais_across_d(data, d=d)
        assert found.value == pytest.approx(value, rel=0.25), d


def test_choices_that_do_not_exist_are_refused():
    data = tree(hais_1l=1.0)
    for statistic, choices, message in (
        (rbm.steinis_to_hais, {"kernel": "narrow"}, "kernel must be one of rule"),
        (rbm.steinis_to_hais, {"refresh": "none"}, "refresh must be one of full, partial"),
        (rbm.steinis_to_hais, {"measure": "mse"}, "measure must be one of rmse"),
        (rbm.steinis_to_hais, {"transitions": "first"}, "transitions must be all, best, last"),
        (rbm.steinis_to_hais, {"transitions": 70}, "were run with .50, 100. transitions"),
        (rbm.steinis_to_hais, {"d": "worst"}, "d worst needs transitions 'last'"),
        (rbm.ais_to_hais, {"langevin": "none"}, "langevin must be one of ratio, plain"),
    ):
        with pytest.raises(ValueError, match=message):
            statistic(data, **choices)


@pytest.mark.slow
def test_rules_rarely_err_on_data_of_the_published_size():
    """A true claim is not refused, and a false one not accepted, at 100 trials."""
    wrong = 0
    for seed in range(8):
        true = tree(seed, steinis_wide=0.8, hais_1l=1.0, ais=2.5)
        false = tree(seed, steinis_wide=1.5, hais_1l=1.0, ais=1.0)
        for statistic, ranges in (
            (rbm.steinis_to_hais, NOT_WORSE),
            (rbm.steinis_to_hais_across_d, NOT_WORSE),
            (rbm.ais_to_steinis, MUCH_SLOWER),
            (rbm.ais_to_hais, MUCH_SLOWER),
        ):
            wrong += judge(statistic(true), *ranges) == "not reproduced"
            wrong += judge(statistic(false), *ranges) == "reproduced"
    assert wrong == 0


def test_dims_are_read_from_the_result():
    data = tree()
    assert rbm.dims(data) == [10, 100]
    assert rbm.all_dims(data, "hais-1l") == [10, 50, 100]
    assert rbm.all_dims(data, "hais-10l") == [10, 100]
