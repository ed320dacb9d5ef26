import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.sections.s5_likelihood import statistics as vae
from steinis_lib.companion.sections.s5_likelihood.problem import VAELikelihood

TRUTH = np.linspace(-120, -60, 12)


def group(error, rng, images=12, transitions=(50, 100), spread=0.0):
    log_z = TRUTH[:images, None] + error + spread * rng.standard_normal((images, len(transitions)))
    return xr.Dataset(
        {"log_z": (("trial", "transitions"), log_z)},
        coords={"trial": range(images), "transitions": list(transitions)},
    )


def tree(spread=0.0, **found):
    rng = np.random.default_rng(4)
    groups = {}
    for d in (10, 20, 50):
        shuffled = xr.Dataset({"log_z": ("trial", TRUTH)}, coords={"trial": range(12)})
        groups[f"truth-{d}"] = shuffled.isel(trial=slice(None, None, -1))  # labels count, not order
        groups[f"bounds-{d}"] = xr.Dataset(
            {"lower": ("trial", TRUTH - 0.1), "upper": ("trial", TRUTH + 0.3)},
            coords={"trial": range(12)},
        )
        for name, error in found.items():
            method = name.replace("_", "-")
            factor = 1000.0 if d == 10 else 1.0  # the claims do not look at d = 10
            groups[f"prior-{method}-{d}"] = group(error * factor, rng, spread=spread)
            groups[f"simulated-{method}-{d}"] = group(error, rng, transitions=(100,))
    found = xr.DataTree.from_dict(groups)
    found.attrs["parameters"] = VAELikelihood().model_dump_json()
    return found


def test_errors_are_against_the_truth_of_the_same_image():
    data = tree(steinis=-2.0)
    k, error = vae.errors(data, "prior", "steinis", 20)
    assert k.tolist() == [50, 100]
    np.testing.assert_allclose(error, -2.0)
    _, error = vae.errors(data, "simulated", "steinis", 20)
    np.testing.assert_allclose(error, -2.1)  # the middle of the bounds is 0.1 above
    assert vae.gap(data, 20).value == pytest.approx(0.4)
    assert vae.dims(data) == [10, 20, 50]


def test_differences_are_positive_where_ours_is_nearer():
    data = tree(steinis=-2.0, steinis_wide=3.0, hais_1l=-5.0)
    assert vae.difference(data, "steinis", "hais-1l").value == pytest.approx(3)
    assert vae.difference(data, "steinis-wide", "hais-1l").value == pytest.approx(2)
    assert vae.difference(data, "steinis", "hais-1l", dim=10).value == pytest.approx(3000)
    assert vae.steinis_ahead(data).value == pytest.approx(3)


def test_only_common_images_and_transitions_are_compared():
    data = tree(steinis=-1.0, hais_10l=-4.0)
    rng = np.random.default_rng(0)
    for d in (20, 50):
        few = group(-4.0, rng, images=5, transitions=(100, 700))
        few["log_z"][:, 1] = 1e6
        data[f"prior-hais-10l-{d}"] = xr.DataTree(few)
    assert vae.difference(data, "hais-10l", "steinis").value == pytest.approx(-3)


def test_claims_take_the_better_variant():
    data = tree(
        steinis=-9.0, steinis_wide=-3.0, hais_1l=-4.0, ais=-20.0, ais_unadjusted=-7.0, hais_10l=-1.0
    )
    assert vae.steinis_ahead(data).value == pytest.approx(1)
    assert vae.ais_behind(data).value == pytest.approx(3)  # HAIS-1L is the nearer to AIS
    assert vae.ten_ahead(data).value == pytest.approx(2)


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
