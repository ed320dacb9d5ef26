import json

import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.sections.s2_mixtures import statistics as gmm

QUANTITIES = ["x1", "x2", "x1²", "x2²", "cos1", "cos2"]


def group(sizes, rng, power=-0.5, factor=1.0, bias=0.0, trials=400):
    """Errors with root mean square factor · n^power, plus a bias that does not average out."""
    scale = factor * np.array(sizes, dtype=float) ** power
    error = rng.standard_normal((trials, len(sizes), 6)) * scale[None, :, None] + bias
    z = 1 + rng.standard_normal((trials, len(sizes))) * 0.1 * scale
    return xr.Dataset(
        {"error": (("trial", "size", "quantity"), error), "log_z": (("trial", "size"), np.log(z))},
        coords={"trial": range(trials), "size": sizes, "quantity": QUANTITIES},
    )


@pytest.fixture
def tree():
    rng = np.random.default_rng(3)
    sizes = [10, 100, 1000]
    svgd = {}
    for n in (10, 100):
        part = group([n], rng, factor=3.0, trials=300 if n == 10 else 30)
        log_z = xr.concat([part.log_z, part.log_z + 0.5], "statistic")
        svgd[f"easy-svgd-{n}"] = part.assign(
            log_z=log_z.transpose("trial", "size", "statistic").assign_coords(statistic=["v", "u"])
        )
    whole = xr.DataTree.from_dict(
        {
            "easy-direct": group(sizes, rng),
            "easy-steinis": group(sizes, rng, factor=2.0),
            "easy-steinis-wide": group(sizes, rng),
            "easy-stuck": group(sizes, rng, bias=1.0),
            **svgd,
        }
    )
    whole.attrs["parameters"] = json.dumps({"interacting_sizes": [10, 100]})
    return whole


def test_square_errors_average_coordinates_and_read_z(tree):
    sizes, errors = gmm.square_errors(tree, "easy", "direct", "E[x²]")
    values = tree["easy-direct"].error.values
    assert sizes.tolist() == [10, 100, 1000]
    np.testing.assert_allclose(errors[1], (values[:, 1, 2] ** 2 + values[:, 1, 3] ** 2) / 2)
    _, z = gmm.square_errors(tree, "easy", "direct", "Z")
    np.testing.assert_allclose(z[2], (np.exp(tree["easy-direct"].log_z.values[:, 2]) - 1) ** 2)


def test_interacting_methods_are_gathered_over_their_sizes(tree):
    sizes, errors = gmm.square_errors(tree, "easy", "svgd", "E[x]")
    assert sizes.tolist() == [10, 100]
    assert [len(e) for e in errors] == [300, 30]
    _, v = gmm.square_errors(tree, "easy", "svgd", "Z")
    _, u = gmm.square_errors(tree, "easy", "svgd", "Z", statistic="u")
    assert u[0].mean() > 5 * v[0].mean()
    with pytest.raises(KeyError, match="easy-nothing"):
        gmm.square_errors(tree, "easy", "nothing", "Z")


def test_slope_finds_the_rate_and_its_absence(tree):
    for task in gmm.TASKS:
        rate = gmm.slope(*gmm.square_errors(tree, "easy", "direct", task))
        assert rate.low < -1 < rate.high
        assert rate.high - rate.low < 0.2
    stuck = gmm.slope(*gmm.square_errors(tree, "easy", "stuck", "E[x]"))
    assert abs(stuck.value) < 0.1


def test_mse_interval_holds_the_exact_value(tree):
    _, errors = gmm.square_errors(tree, "easy", "direct", "E[x]")
    value, low, high = gmm.mse(errors)
    assert (np.abs(value - [-1, -2, -3]) < high - low).all()  # within about four sigma
    assert (high - low < 0.15).all()
    assert ((low < value) & (value < high)).all()


def test_ratios_of_known_methods(tree):
    four = gmm.steinis_near_direct(tree)
    assert four.low < 4 < four.high < 4.6
    nine = gmm.svgd_near_steinis(tree)
    assert nine.low < 9 < nine.high < 12
    one = gmm.compare(tree, "easy", "steinis-wide", "direct", tuple(gmm.EXPECTATIONS))
    assert one.low < 1 < one.high < 1.15


def test_bias_of_z_is_seen(tree):
    shifted = tree["easy-direct"].to_dataset()
    shifted["log_z"] = shifted.log_z + np.log(1.05)
    biased = gmm.z_bias(xr.DataTree.from_dict({"hard-direct": shifted}), "hard", "direct")
    assert biased.low < 5 < biased.high
    assert abs(gmm.z_bias(tree, "easy", "direct").value) < 1
