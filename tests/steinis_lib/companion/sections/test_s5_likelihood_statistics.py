import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.claims import ledger
from steinis_lib.companion.sections.s5_likelihood import SECTION
from steinis_lib.companion.sections.s5_likelihood import statistics as vae
from steinis_lib.companion.sections.s5_likelihood.problem import VAELikelihood

N = 12
TRUTH = np.linspace(-120, -60, N)
FAMILIES = {"steinis": -9.0, "steinis_double": -7.0, "steinis_wide": -3.0, "steinis_adagrad": 5.0}


def group(error, rng, images=N, transitions=(50, 300, 1000), spread=0.0):
    """Errors are one number, or one for each number of transitions."""
    noise = spread * rng.standard_normal((images, len(transitions)))
    log_z = TRUTH[:images, None] + np.broadcast_to(error, noise.shape) + noise
    return xr.Dataset(
        {"log_z": (("trial", "transitions"), log_z)},
        coords={"trial": range(images), "transitions": list(transitions)},
    )


def route(log_z, standard_error):
    return xr.Dataset(
        {"log_z": ("trial", log_z), "standard_error": ("trial", np.full(N, standard_error))},
        coords={"trial": range(N)},
    )


def tree(spread=0.0, own=1e-6, **found):
    """A result with these errors of methods; those of d = 10 are a thousand times as large."""
    rng = np.random.default_rng(4)
    groups = {}
    for d in (10, 20, 50):
        backwards = slice(None, None, -1)  # labels count, not order
        groups[f"truth-{d}"] = route(TRUTH, own).isel(trial=backwards)
        groups[f"bridge-{d}"] = route(TRUTH, own)
        groups[f"bounds-{d}"] = xr.Dataset(
            {"lower": ("trial", TRUTH - 0.1), "upper": ("trial", TRUTH + 0.3)},
            coords={"trial": range(N)},
        )
        for name, error in found.items():
            method = name.replace("_", "-")
            factor = 1000.0 if d == 10 else 1.0
            scaled = np.multiply(error, factor)
            for condition in ("prior", "encoder"):
                groups[f"{condition}-{method}-{d}"] = group(scaled, rng, spread=spread)
            groups[f"simulated-{method}-{d}"] = group(
                np.atleast_1d(error)[-1], rng, transitions=(1000,)
            )
    result = xr.DataTree.from_dict(groups)
    result.attrs["parameters"] = VAELikelihood().model_dump_json()
    return result


def test_the_truth_is_the_mean_of_both_routes_by_precision():
    data = tree()
    data["bridge-20"] = xr.DataTree(route(TRUTH + 0.3, 0.02))
    data["truth-20"] = xr.DataTree(route(TRUTH, 0.01).isel(trial=slice(None, None, -1)))
    found = vae.truth(data, 20)
    np.testing.assert_allclose(found.log_z.sel(trial=range(N)), TRUTH + 0.3 / 5)
    np.testing.assert_allclose(found.standard_error, 1 / np.sqrt(1 / 0.01**2 + 1 / 0.02**2))
    np.testing.assert_allclose(vae.agreement(data, 20), -0.3 / np.hypot(0.01, 0.02))
    assert vae.truth_difference(data, 20).value == pytest.approx(-0.3)


def test_errors_are_against_the_truth_of_the_same_image():
    data = tree(own=0.02, steinis=-2.0)
    k, error = vae.errors(data, "prior", "steinis", 20)
    assert k.tolist() == [50, 300, 1000]
    np.testing.assert_allclose(error, -2.0)
    np.testing.assert_allclose(vae.truth_errors(data, "prior", "steinis", 20), 0.02 / np.sqrt(2))
    _, error = vae.errors(data, "simulated", "steinis", 20)
    np.testing.assert_allclose(error, -2.1)  # the middle of the bounds is 0.1 above
    np.testing.assert_allclose(vae.truth_errors(data, "simulated", "steinis", 20), 0.2)
    assert vae.gap(data, 20).value == pytest.approx(0.4)
    assert vae.dims(data) == [10, 20, 50]


def test_differences_are_positive_where_ours_is_nearer():
    data = tree(steinis=-2.0, steinis_wide=3.0, hais_1l=-5.0)
    assert vae.difference(data, ("steinis",), "hais-1l").value == pytest.approx(3)
    assert vae.difference(data, ("steinis-wide",), "hais-1l").value == pytest.approx(2)
    assert vae.difference(data, ("steinis",), "hais-1l", d=10).value == pytest.approx(3000)
    both = vae.difference(data, ("steinis-wide", "steinis"), "hais-1l")
    assert both.value == pytest.approx(3)


def test_a_higher_curve_is_not_a_nearer_one():
    data = tree(steinis_leaders=20.0, hais_1l=-5.0)
    nearer = vae.steinis_ahead(data, kernel="leaders")
    higher = vae.steinis_ahead(data, kernel="leaders", measure="height")
    assert nearer.value == pytest.approx(-15) and higher.value == pytest.approx(25)


def test_measures_differ():
    data = tree(steinis=0.0, hais_1l=-1.0)
    errors = np.where(np.arange(N) % 2, 3.0, -3.0)
    errors[0] = -30.0
    data["prior-steinis-20"] = xr.DataTree(group(errors[:, None], np.random.default_rng(0)))
    expected = {"mean": 27 / N, "rmse": np.sqrt((11 * 9 + 900) / N), "median": 3, "height": 27 / N}
    for measure, size in expected.items():
        found = vae.distance(data, kernel="rule", measure=measure, d=20)
        assert found.value == pytest.approx(size), measure


def test_transitions_are_all_the_best_the_last_or_one():
    data = tree(steinis=[-8.0, -2.0, -4.0], hais_1l=[-8.0, -6.0, -1.0])
    expected = {"all": 1 / 3, "best": 4, "last": -3, 50: 0, 300: 4}
    for transitions, value in expected.items():
        found = vae.steinis_ahead(data, kernel="rule", transitions=transitions)
        assert found.value == pytest.approx(value), transitions
    for nonsense, message in (("first", "transitions must be"), (70, r"with \[50, 300, 1000\]")):
        with pytest.raises(ValueError, match=message):
            vae.steinis_ahead(data, kernel="rule", transitions=nonsense)


def test_only_common_images_and_transitions_are_compared():
    data = tree(steinis=-1.0, hais_10l=-4.0)
    rng = np.random.default_rng(0)
    for d in (20, 50):
        few = group(-4.0, rng, images=5, transitions=(300, 700))
        few["log_z"][:, 1] = 1e6
        data[f"prior-hais-10l-{d}"] = xr.DataTree(few)
    assert vae.difference(data, ("hais-10l",), "steinis").value == pytest.approx(-3)


def test_the_better_kernel_is_the_best_on_that_statistic():
    data = tree(hais_1l=-4.0, hais_1l_partial=-2.0, hais_10l=-1.0, **FAMILIES)
    assert vae.steinis_ahead(data).value == pytest.approx(1)
    assert vae.steinis_ahead(data, refresh="partial").value == pytest.approx(-1)
    assert vae.steinis_ahead(data, kernel="rule").value == pytest.approx(-5)
    assert vae.ten_ahead(data).value == pytest.approx(2)
    assert vae.distance(data).value == pytest.approx(3)
    assert vae.distance(data, kernel="adagrad").value == pytest.approx(5)


def test_a_gain_is_that_of_the_kernel_that_ends_nearest():
    late = FAMILIES | {"steinis_wide": [-9.0, -5.0, -3.0], "steinis_double": [-90.0, -80.0, -7.0]}
    data = tree(**late)
    assert vae.gain(data).value == pytest.approx(2)
    assert vae.gain(data, since=50).value == pytest.approx(6)
    assert vae.gain(data, kernel="double").value == pytest.approx(73)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"kernel": "narrow"}, "kernel must be one of rule"),
        ({"measure": "worst"}, "measure must be one of mean"),
    ],
)
def test_nonsense_is_refused(choices, message):
    data = tree(hais_1l=-4.0, **FAMILIES)
    for statistic in (vae.steinis_ahead, vae.distance, vae.gain):
        with pytest.raises(ValueError, match=message):
            statistic(data, **choices)
    with pytest.raises(ValueError, match="refresh must be one of full, partial"):
        vae.steinis_ahead(data, refresh="none")
    with pytest.raises(ValueError, match="transitions must be last or a number"):
        vae.distance(data, transitions="best")


@pytest.mark.slow
def test_all_readings_of_the_ledger_can_be_judged():
    """Each reading of the claims that this section tests gets an estimate from a result."""
    others = {"steinis_leaders": 1.0, "hais_1l": -4.0, "hais_1l_partial": -4.0, "hais_10l": -1.0}
    data = tree(spread=0.1, own=0.01, **FAMILIES, **others)
    claims = [claim for claim in ledger() if claim.id in SECTION.statistics]
    assert len(claims) == len(SECTION.statistics) == 4
    for claim in claims:
        assert len(claim.readings) >= 3
        for reading in claim.readings:
            found = SECTION.statistics[claim.id](data, **reading.choices)
            assert found.low <= found.value <= found.high, (claim.id, reading.name)


def test_intervals_contain_the_errors_of_the_truth():
    values = np.zeros((100, 2))
    value, low, high = vae.mean_error(values, np.full(100, 0.5))
    np.testing.assert_allclose(value, 0.0)
    np.testing.assert_allclose(high - low, 2 * 1.96 * 0.05 * np.sqrt(2), rtol=0.1)
    # an image that is drawn twice has one truth, which is the factor √2 above
    _, low, high = vae.mean_error(values)
    assert (low == 0).all() and (high == 0).all()


def test_a_truth_that_both_methods_share_cancels_in_their_difference():
    data = tree(own=3.0, steinis=-20.0, hais_1l=-50.0)
    ahead = vae.steinis_ahead(data, kernel="rule")
    assert ahead.high - ahead.low < 1e-9 < 1 < vae.distance(data, kernel="rule").high - 20


@pytest.mark.slow
def test_intervals_cover():
    hits = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        values = rng.standard_normal((60, 1)) + 1.5
        _, low, high = vae.mean_error(values)
        hits += bool(low[0] <= 1.5 <= high[0])
    assert hits >= 33
    value, low, high = vae.rms_error(np.full((5, 2), -3.0))
    np.testing.assert_allclose([value, low, high], 3)
