import json

import numpy as np
import pytest
import xarray as xr

from steinis_lib.companion.reading_claims import judge
from steinis_lib.companion.sections.s2_mixtures import statistics as gmm

QUANTITIES = ["x1", "x2", "x1²", "x2²", "cos1", "cos2"]
SIZES = [10, 100, 1000]
FACTORS = {"steinis": 3.0, "steinis-double": 2.0, "steinis-wide": 1.0, "steinis-adagrad": 1.5}
"""Root mean square errors of the families over those of exact draws, in the made-up result."""


def group(sizes, rng, power=-0.5, factor=1.0, bias=0.0, trials=400, plain_bias=1.0):
    """Errors with root mean square factor · n^power, plus a bias that does not average out."""
    scale = factor * np.array(sizes, dtype=float) ** power
    error = rng.standard_normal((trials, len(sizes), 6)) * scale[None, :, None] + bias
    z = 1 + rng.standard_normal((trials, len(sizes))) * 0.1 * scale
    return xr.Dataset(
        {
            "error": (("trial", "size", "quantity"), error),
            "error_unweighted": (("trial", "size", "quantity"), error + plain_bias),
            "log_z": (("trial", "size"), np.log(z)),
        },
        coords={"trial": range(trials), "size": sizes, "quantity": QUANTITIES},
    )


def svgd_group(n, rng, factor, trials):
    """SVGD at one size, whose Ẑ has a U-statistic that is far off."""
    part = group([n], rng, factor=factor, trials=trials).drop_vars("error_unweighted")
    log_z = xr.concat([part.log_z, part.log_z + 0.5], "statistic")
    return part.assign(
        log_z=log_z.transpose("trial", "size", "statistic").assign_coords(statistic=["v", "u"])
    )


def made_up(factors, rng, *, power=-0.5, svgd=3.0, rule=3.0, trials=400, fewer=40):
    """A whole result on easy mixtures; `factors`: family → root mean square error over exact."""
    groups = {"easy-direct": group(SIZES, rng, trials=trials)}
    for family, factor in factors.items():
        n = fewer if family == "steinis-adagrad" else trials
        groups[f"easy-{family}"] = group(SIZES, rng, power, factor, trials=n)
    for n in (10, 100):
        count = trials if n == 10 else fewer
        groups[f"easy-svgd-{n}"] = svgd_group(n, rng, svgd, count)
        groups[f"easy-svgd-rule-{n}"] = svgd_group(n, rng, rule, fewer)
    tree = xr.DataTree.from_dict(groups)
    tree.attrs["parameters"] = json.dumps({"interacting_sizes": [10, 100]})
    return tree


@pytest.fixture(scope="module")
def tree():
    rng = np.random.default_rng(3)
    found = made_up(FACTORS, rng)
    found["easy-stuck"] = xr.DataTree(group(SIZES, rng, bias=1.0))
    return found


def test_square_errors_average_coordinates_and_read_z(tree):
    sizes, errors = gmm.square_errors(tree, "easy", "direct", "E[x²]")
    values = tree["easy-direct"].error.values
    assert sizes.tolist() == SIZES
    np.testing.assert_allclose(errors[1], (values[:, 1, 2] ** 2 + values[:, 1, 3] ** 2) / 2)
    _, z = gmm.square_errors(tree, "easy", "direct", "Z")
    np.testing.assert_allclose(z[2], (np.exp(tree["easy-direct"].log_z.values[:, 2]) - 1) ** 2)


def test_interacting_methods_are_gathered_over_their_sizes(tree):
    sizes, errors = gmm.square_errors(tree, "easy", "svgd", "E[x]")
    assert sizes.tolist() == [10, 100]
    assert [len(e) for e in errors] == [400, 40]
    _, v = gmm.square_errors(tree, "easy", "svgd", "Z")
    _, u = gmm.square_errors(tree, "easy", "svgd", "Z", statistic="u")
    assert u[0].mean() > 5 * v[0].mean()
    with pytest.raises(KeyError, match="easy-nothing"):
        gmm.square_errors(tree, "easy", "nothing", "Z")


def test_slope_finds_the_rate_and_its_absence(tree):
    for task in gmm.TASKS:
        rate = gmm.slope(*gmm.square_errors(tree, "easy", "direct", task))
        assert abs(rate.value + 1) < rate.high - rate.low < 0.2  # within about four sigma
    stuck = gmm.slope(*gmm.square_errors(tree, "easy", "stuck", "E[x]"))
    assert abs(stuck.value) < 0.1


def test_mse_interval_holds_the_exact_value(tree):
    _, errors = gmm.square_errors(tree, "easy", "direct", "E[x]")
    value, low, high = gmm.mse(errors)
    assert (np.abs(value - [-1, -2, -3]) < high - low).all()  # within about four sigma
    assert (high - low < 0.15).all()
    assert ((low < value) & (value < high)).all()


@pytest.mark.parametrize("kernel", ["rule", "double", "wide", "adagrad"])
def test_ratios_to_exact_draws_are_the_squares_of_the_factors(tree, kernel):
    expected = FACTORS[gmm.KERNELS[kernel]] ** 2
    found = gmm.steinis_near_direct(tree, kernel=kernel)
    assert found.low < expected < found.high
    assert found.high < 2 * found.low


def assert_same(one, other):
    """The intervals are from other draws where other families have fewer trials."""
    assert one.value == pytest.approx(other.value, rel=1e-9)
    assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=0.1)


def test_the_better_kernel_is_that_of_the_smallest_error(tree):
    assert_same(gmm.steinis_near_direct(tree), gmm.steinis_near_direct(tree, kernel="wide"))
    assert_same(gmm.mse_rate(tree), gmm.mse_rate(tree, kernel="wide"))
    worse = made_up(FACTORS | {"steinis-wide": 4.0}, np.random.default_rng(0))
    assert_same(gmm.mse_rate(worse), gmm.mse_rate(worse, kernel="adagrad"))


def test_the_better_kernel_may_depend_on_the_size():
    result = made_up(FACTORS, np.random.default_rng(0))
    result["easy-steinis"].error.values[:, -1] *= 1e-6  # the rule is the best at |B| = 1000
    for size, kernel in ((1000, "rule"), (10, "wide")):
        best = gmm.steinis_near_direct(result, task="E[x]", size=size)
        assert_same(best, gmm.steinis_near_direct(result, kernel=kernel, task="E[x]", size=size))


def test_the_interval_knows_that_another_kernel_might_have_been_the_better_one():
    """Two families equally good on the whole, one better with few followers, one with many."""
    equal = dict.fromkeys(FACTORS, 5.0) | {"steinis": 1.0, "steinis-wide": 1.0, "direct": 1.0}
    result = made_up(equal, np.random.default_rng(0))
    sizes = result["easy-steinis"].sizes["size"]
    tilt = np.geomspace(1.3, 1 / 1.3, sizes)[:, None]
    result["easy-steinis"].error.values[:] *= tilt
    result["easy-steinis-wide"].error.values[:] /= tilt
    one, other = (gmm.mse_rate(result, kernel=k, task="expectations") for k in ("rule", "wide"))
    assert one.high < other.low
    both = gmm.mse_rate(result, task="expectations")
    assert both.low < one.high
    assert both.high > other.low


def test_svgd_and_path_integration_meet_steinis_at_the_settings_of_the_reading(tree):
    nine = gmm.svgd_near_steinis(tree)
    assert nine.low < 9 < nine.high < 13
    one = gmm.svgd_near_steinis(tree, kernel="rule")
    assert one.low < 1 < one.high < 1.5
    by_path = gmm.path_integration_worse(tree)
    assert by_path.low < 9 < by_path.high < 20
    assert gmm.path_integration_worse(tree, statistic="u").low > 2 * by_path.high
    one_size = gmm.svgd_near_steinis(tree, size=10)
    assert one_size.low < 9 < one_size.high < 11
    with pytest.raises(ValueError, match=r"size 50: .* svgd has \[10, 100\]"):
        gmm.svgd_near_steinis(tree, kernel="wide", size=50)
    with pytest.raises(ValueError, match=r"size 50: steinis has \[10, 100, 1000\]"):
        gmm.svgd_near_steinis(tree, size=50)


def test_plain_averages_are_those_of_steinis_alone(tree):
    assert gmm.steinis_near_direct(tree, average="plain").low > 50
    assert abs(gmm.mse_rate(tree, average="plain", task="expectations").value) < 0.2
    assert gmm.svgd_near_steinis(tree, average="plain").high < 0.5


def test_rates_over_tasks_and_from_a_size_on():
    result = made_up(FACTORS, np.random.default_rng(1))
    result["easy-steinis-wide"].error.values[:, 0] *= 10.0  # but for Z, worse at |B| = 10
    steep = gmm.mse_rate(result, kernel="wide", task="expectations")
    assert steep.low < -2 < steep.high  # two decades more over two decades of |B|
    assert gmm.mse_rate(result, kernel="wide", task="Z").low > -1.2
    both = gmm.mse_rate(result, kernel="wide")
    assert both.low < -1.75 < both.high  # three tasks at -2, one at -1
    later = gmm.mse_rate(result, kernel="wide", task="E[x]", smallest=100)
    assert later.low < -1 < later.high


@pytest.mark.parametrize(
    ("choices", "message"),
    [({"kernel": "narrow"}, "kernel 'narrow'"), ({"task": "E[y]"}, r"task 'E\[y\]'")],
)
def test_unknown_words_are_refused(tree, choices, message):
    with pytest.raises(ValueError, match=message):
        gmm.mse_rate(tree, **choices)


def test_a_trial_is_resampled_with_all_its_cells():
    """Two methods with the same hard trials: their ratio is certain though each MSE is not."""
    rng = np.random.default_rng(0)
    hardness = np.exp(2 * rng.standard_normal(200))
    ours = [[2 * hardness, hardness]]
    theirs = [[hardness, hardness[:50]]]
    paired = gmm.ratio([ours[0][:1]], [theirs[0][:1]])
    assert paired.value == pytest.approx(2)
    assert paired.high - paired.low < 1e-9
    fewer = gmm.ratio(ours, theirs)  # the second cell of theirs has a part of the trials only
    assert fewer.high - fewer.low > 0.1
    alone = gmm.ratio([[hardness]], [[np.ones(200)]])
    spread = np.std([rng.choice(hardness, 200).mean() for _ in range(1000)])
    assert alone.high - alone.low == pytest.approx(3.9 * spread * gmm.THINNED**0.5, rel=0.25)


RULES = {
    "mse_rate": ((-1.15, -0.85), (-1.5, -0.5)),
    "steinis_near_direct": ((0, 1.5), (0, 3)),
    "svgd_near_steinis": ((0.67, 1.5), (0.2, 5)),
    "path_integration_worse": ((1.2, np.inf), (0.8, np.inf)),
}
EVEN = dict.fromkeys(FACTORS, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "true", "false"),
    [
        ("mse_rate", {"power": -0.5}, {"power": -0.2}),
        ("steinis_near_direct", {}, {"factors": dict.fromkeys(FACTORS, 2.0)}),
        ("svgd_near_steinis", {"svgd": 1.0}, {"svgd": 2.5}),
        ("path_integration_worse", {"svgd": 1.4}, {"svgd": 0.8}),
    ],
)
def test_rules_tell_a_true_claim_from_a_false_one(name, true, false):
    """Made-up results of the published size: neither kind of error in 6 repeats."""
    verdicts = {"true": [], "false": []}
    for seed in range(6):
        for which, change in (("true", true), ("false", false)):
            rng = np.random.default_rng([seed, which == "true"])
            result = made_up(rng=rng, **({"factors": EVEN, "trials": 500, "fewer": 100} | change))
            verdicts[which].append(judge(getattr(gmm, name)(result), *RULES[name]))
    assert "not reproduced" not in verdicts["true"]
    assert "reproduced" not in verdicts["false"]
    assert verdicts["true"].count("reproduced") > 2  # and the rule can say so


def test_bias_of_z_is_seen(tree):
    shifted = tree["easy-direct"].to_dataset()
    shifted["log_z"] = shifted.log_z + np.log(1.05)
    biased = gmm.z_bias(xr.DataTree.from_dict({"hard-direct": shifted}), "hard", "direct")
    assert biased.low < 5 < biased.high
    assert abs(gmm.z_bias(tree, "easy", "direct").value) < 1
