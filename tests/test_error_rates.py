"""The program that measures how often the rules of the ledger err, and what it stored."""

import json
import math

import error_rates
import numpy as np
import populations
import pytest
import toy_claims
import xarray as xr
from error_rates import Case, cases, cells_read, draw, measure, primary, with_value
from populations import POPULATIONS, Population, tree_of
from scipy import stats

from steinis_lib.companion import fairness_page
from steinis_lib.companion.claims import ledger
from steinis_lib.companion.fairness_page import LIMIT, rates_of
from steinis_lib.companion.intervals import Estimate, mean, resampling
from steinis_lib.companion.obtain import stored
from steinis_lib.companion.reading_claims import AS_STATED
from steinis_lib.companion.registry import EXPERIMENTS, STATISTICS

INF = math.inf
CLAIMS = {claim.id: claim for claim in ledger()}
MADE = sorted(name for name, population in POPULATIONS.items() if population is not None)
TRIALS = 60


# ---------------------------------------------------------------- made-up results of all sections


def noisy(rng, mean, sizes, trials=TRIALS, spread=0.2):
    """Positive numbers about a mean, ``(trials, sizes)``, each trial with a factor of its own."""
    shape = (trials, sizes)
    factor = np.exp(spread * (rng.standard_normal((trials, 1)) + rng.standard_normal(shape) / 4))
    return mean * factor


def finished(groups, experiment):
    tree = xr.DataTree.from_dict(groups)
    parameters = EXPERIMENTS[experiment].parameters.of_profile("paper")
    tree.attrs["parameters"] = parameters.model_dump_json()
    return tree


def cells_of(experiment):
    """The labels of an experiment's cells at its published sizes."""
    parameters = EXPERIMENTS[experiment].parameters.of_profile("paper")
    return [cell.label for cell in EXPERIMENTS[experiment].cells(parameters)]


def curves(rng, trials=40):
    time = np.arange(61.0)
    found = {}
    for label in cells_of("gmm-convergence"):
        rate = 0.05 * np.exp(0.2 * rng.standard_normal((trials, 1)))
        fall = np.exp(-rate * time) + 0.02
        off = 0.01 * rng.standard_normal((trials, 61))
        values = {"kl": fall, "ksd2": fall, "ksd2_leaders": fall, "kl_rate": fall * (off - 1)}
        found[label] = xr.Dataset(
            {name: (("trial", "time"), x) for name, x in values.items()},
            coords={"trial": range(trials), "time": time},
        )
    return finished(found, "gmm-convergence")


def checks(rng, trials=400):
    epsilon = np.array([0.01, 0.03, 0.1, 0.3])
    error = noisy(rng, 1.0, 4, trials, 0.01) * epsilon**2
    numbers = {"trial": range(trials)}
    found = {
        "unbiased-exact": xr.Dataset(
            {"log_z": ("trial", 0.3 * rng.standard_normal(trials))}, numbers
        ),
        "determinant": xr.Dataset(
            {"error": (("trial", "epsilon"), error)}, numbers | {"epsilon": epsilon}
        ),
        "stopping": xr.Dataset(
            {
                "ess": ("trial", np.where(np.arange(trials) % 5, 0.85, 0.5)),
                "log_z": ("trial", 0.1 * rng.standard_normal(trials)),
                "log_z_se": ("trial", noisy(rng, 0.1, 1, trials)[:, 0]),
            },
            numbers,
        ),
        "continuing": xr.Dataset({"difference": ("trial", [0.0, 0.0])}, {"trial": range(2)}),
    }
    return finished(found, "algorithm-checks")


def estimation(rng):
    """SVGD has a cell for each size, with fewer trials for the larger ones."""
    quantities = ["x1", "x2", "x1²", "x2²", "cos1", "cos2"]
    found = {}
    for label in cells_of("gmm-estimation"):
        if not label.startswith("easy-") or "tuning" in label:
            continue
        svgd = "svgd" in label
        sizes = [int(label.rpartition("-")[2])] if svgd else [10, 20, 50, 100, 200, 500, 1000]
        trials = TRIALS // 2 if svgd and sizes[0] > 50 else TRIALS
        scale = np.array(sizes) ** -0.5 * np.exp(0.3 * rng.random())
        error = rng.standard_normal((trials, len(sizes), 6)) * scale[:, None]
        log_z = np.log1p(0.1 * rng.standard_normal((trials, len(sizes))) * scale)
        dims, coords = ("trial", "size"), {"trial": range(trials), "size": sizes}
        if svgd:
            log_z, dims = np.stack([log_z, log_z + 0.1], -1), (*dims, "statistic")
            coords["statistic"] = ["v", "u"]
        found[label] = xr.Dataset(
            {"error": (("trial", "size", "quantity"), error), "log_z": (dims, log_z)},
            coords=coords | {"quantity": quantities},
        )
    return finished(found, "gmm-estimation")


def comparison(rng, trials=12):
    found = {}
    for label in cells_of("adaptive-comparison"):
        if "-pilot-" in label:
            kl = rng.random((1, 3, 4))
            found[label] = xr.Dataset(
                {
                    "kl": (("trial", "candidate", "checkpoint"), kl),
                    "score": (("trial", "candidate"), -kl[..., -1]),
                },
                coords={"trial": [0], "checkpoint": [0, 10, 20, 50]},
            )
        elif "-optimum-" in label:
            found[label] = xr.Dataset(
                {"kl": (("trial", "objective"), noisy(rng, 0.4, 2, trials))},
                coords={"trial": range(trials), "objective": ["variance", "reverse-kl"]},
            )
        elif any(word in label for word in ("-steinis", "-pmc-", "-refine-")):
            values = {name: noisy(rng, 0.05, 4, trials) for name in ("kl", "kl_grid")}
            found[label] = xr.Dataset(
                {name: (("trial", "checkpoint"), x) for name, x in values.items()},
                coords={"trial": range(trials), "checkpoint": [0, 10, 20, 50]},
            )
    return finished(found, "adaptive-comparison")


def partition(rng):
    numbers, found = [50, 100, 200, 500, 1000, 1500], {}
    for label in cells_of("rbm"):
        if label.startswith("standard-") and "tuning" not in label:
            trials = TRIALS if "steinis-double" not in label else TRIALS // 2
            sign = np.where(rng.random((trials, 1)) < 0.5, -1, 1)
            found[label] = xr.Dataset(
                {"error": (("trial", "transitions"), sign * noisy(rng, 3.0, 6, trials, 0.5))},
                coords={"trial": range(trials), "transitions": numbers},
            )
    return finished(found, "rbm")


def images(rng):
    """Errors against a truth that has errors of its own; HAIS-10L has fewer images."""
    numbers, found = [50, 100, 300, 1000], {}
    for dim in (10, 20, 50):
        exact = -100 + 20 * rng.standard_normal(TRIALS)
        for route in ("truth", "bridge"):
            own = np.full(TRIALS, 0.05)
            found[f"{route}-{dim}"] = xr.Dataset(
                {
                    "log_z": ("trial", exact + own * rng.standard_normal(TRIALS)),
                    "standard_error": ("trial", own),
                },
                coords={"trial": range(TRIALS)},
            )
        for label in cells_of("vae"):
            if label.startswith("prior-") and "tuning" not in label and label.endswith(f"-{dim}"):
                trials = TRIALS // 3 if "10l" in label else TRIALS
                error = -noisy(rng, 2.0, 4, trials)
                found[label] = xr.Dataset(
                    {"log_z": (("trial", "transitions"), exact[:trials, None] + error)},
                    coords={"trial": range(trials), "transitions": numbers},
                )
    return finished(found, "vae")


def timings(rng, trials=12):
    methods = ["steinis", "steinis-exact", "hais-1l", "hais-10l", "ais"]
    found = {}
    for i, dim in enumerate((10, 20, 50)):
        each = noisy(rng, 1.0, 5, trials, 0.1) * np.array([1.4 + 0.1 * i, 2.0, 1.0, 4.0, 0.8])
        found[f"table-{dim}"] = xr.Dataset(
            {
                "seconds": (
                    ("trial", "method", "transitions"),
                    each[..., None] * np.array([2.0, 4.0, 8.0]),
                )
            },
            coords={"trial": range(trials), "method": methods, "transitions": [2, 4, 8]},
        )
    for label in ("leaders", "followers", "exact"):
        sizes = np.array([32, 64, 128, 256])
        found[f"growth-{label}"] = xr.Dataset(
            {"seconds": (("trial", "size"), noisy(rng, 1.0, 4, trials, 0.05) * sizes**1.5)},
            coords={"trial": range(trials), "size": sizes},
        )
    return finished(found, "running-time")


MAKERS = {
    "gmm-convergence": curves,
    "algorithm-checks": checks,
    "gmm-estimation": estimation,
    "adaptive-comparison": comparison,
    "rbm": partition,
    "vae": images,
    "running-time": timings,
}


@pytest.fixture(scope="module")
def made_up():
    """Experiment → a made-up result of its published shape."""
    return {name: make(np.random.default_rng(3)) for name, make in MAKERS.items()}


def read(name, made_up):
    """A claim, its primary reading's statistic, and the cells of a made-up result it reads."""
    claim = CLAIMS[name]
    reading = primary(claim)

    def statistic(tree):
        return STATISTICS[name](tree, **reading.choices)

    return claim, statistic, cells_read(statistic, made_up[claim.experiment_of(reading)])


# ------------------------------------------------------------------------------------------ cases


@pytest.mark.parametrize(
    ("reproduced", "partly", "values"),
    [
        ((0, 0.05), (0, 0.2), [0.025, 0.05, 0.2]),
        ((1, INF), (0.5, INF), [1.5, 1, 0.5]),
        ((-INF, 0.3), (-INF, 1), [-0.4, 0.3, 1]),
        ((-1, 1), (-5, 5), [0, -1, -5, 1, 5]),
        ((0.9, 0.98), (0.8, 0.98), [0.94, 0.9, 0.8]),
    ],
)
def test_cases_are_the_middle_and_both_sides_of_each_edge(reproduced, partly, values):
    found = cases(reproduced, partly)
    assert [case.value for case in found] == pytest.approx(values)
    edges = ["edge", "outside"] * (len(values) // 2)
    assert [case.where for case in found] == ["middle", *edges]
    assert {case.side for case in found[1:3]} == {"lower" if values[0] > values[1] else "upper"}
    assert all(0 < case.within <= 0.1 * 4 for case in found)


def test_ranges_without_an_edge_are_refused():
    with pytest.raises(ValueError, match="no edge between"):
        cases((0, 1), (0, 1))


# ---------------------------------------------------------------------------------------- drawing


def numbered(sizes, **pilots):
    groups = {
        label: xr.Dataset({"x": ("trial", np.arange(n))}, coords={"trial": range(n)})
        for label, n in sizes.items()
    }
    for label, n in pilots.items():
        groups[label] = xr.Dataset({"x": (("trial", "candidate"), [np.arange(n)])})
    return xr.DataTree.from_dict(groups)


def test_a_trial_is_drawn_with_all_its_cells():
    tree = numbered({"a": 50, "b": 50, "short": 10}, pilot=7)
    tree.attrs["parameters"] = "{}"
    drawn = draw(tree, np.random.default_rng(0))
    a, short = drawn["a"].x.values, drawn["short"].x.values
    assert drawn["b"].x.values.tolist() == a.tolist()
    assert short.tolist() == a[:10].tolist()
    assert short.max() < 10 <= a[10:].min()  # those that all cells have stay together
    assert len(set(a)) < 45
    assert drawn["pilot"].x.values.tolist() == [list(range(7))]
    assert drawn["a"].trial.values.tolist() == list(range(50))
    assert drawn.attrs == tree.attrs


def test_trials_that_have_nothing_in_common_are_drawn_apart():
    drawn = draw(numbered({"a": 50, "short": 10}), np.random.default_rng(0), apart=True)
    assert drawn["short"].x.values.tolist() != drawn["a"].x.values[:10].tolist()
    assert drawn["a"].x.values[:10].max() >= 10


def test_draws_are_even():
    rng, tree = np.random.default_rng(1), numbered({"a": 20, "b": 8})
    seen = np.concatenate([draw(tree, rng)["a"].x.values for _ in range(300)])
    counts = np.bincount(seen, minlength=20)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_only_cells_that_a_statistic_reads_are_kept_in_order():
    tree = numbered({"a": 4, "b": 4, "c": 4})
    tree["b"] = xr.DataTree(tree["b"].to_dataset().isel(trial=[2, 0, 1, 3]))
    part = cells_read(lambda t: mean(t["a"].x.values + t["b"].x.values), tree)
    assert set(part.children) == {"a", "b"}
    assert part["b"].x.values.tolist() == [0, 1, 2, 3]
    tree["b"] = xr.DataTree(tree["b"].to_dataset().isel(trial=[2, 3]))
    with pytest.raises(ValueError, match="expected 0, 1, 2"):
        cells_read(lambda t: mean(t["b"].x.values), tree)


# ------------------------------------------------------------------------------------ populations


def test_every_claim_of_the_ledger_has_a_population_or_nothing_random():
    assert [name for name in CLAIMS if name not in POPULATIONS] == []
    assert [name for name in POPULATIONS if name not in CLAIMS] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_a_population_has_the_value_that_is_wanted(name, made_up):
    claim, statistic, part = read(name, made_up)
    population = POPULATIONS[name]
    with resampling(1):
        values = [statistic(population.of(part, amount)).value for amount in (0, 0.3, 0.8)]
        if not name.startswith("kl-monotone"):
            assert values[0] == pytest.approx(statistic(part).value)  # zero changes nothing
        steps = np.diff(values)
        assert (steps > 0).all() or (steps < 0).all(), values
        for case in cases(*claim.ranges_of(primary(claim)))[1:]:
            whole, value = with_value(population, part, statistic, case)
            assert statistic(whole).value == pytest.approx(value)
            assert abs(value - case.value) <= case.within
            assert set(whole.children) == set(part.children)


def test_rises_are_in_the_trials_where_kl_rises_most():
    kl = np.tile(np.linspace(2.0, 1.0, 11), (10, 1))
    kl[7, 5] += 0.5
    group = xr.Dataset({"kl": (("trial", "time"), kl)})
    made = populations.with_rises(xr.DataTree.from_dict({"a": group}), 0.1, tolerance=1e-3)["a"].kl
    falls = (np.diff(made.values, axis=1) <= 0).all(1)
    assert falls.tolist() == [i != 7 for i in range(10)]
    assert made.values[7, -1] > 1.001 * made.values[7, :-1].min()


def test_a_value_that_no_population_has_is_refused():
    tree = xr.DataTree.from_dict(
        {"a": xr.Dataset({"x": ("trial", np.ones(4))}, {"trial": range(4)})}
    )
    fixed = Population(lambda t, amount: {}, "nothing")
    steps = Population(
        lambda t, amount: {"a": t["a"].to_dataset() + np.sign(amount - 0.1)}, "steps"
    )

    def statistic(t):
        return mean(t["a"].x.values + 0.0)

    case = Case("edge", "upper", 1.5, 0.01)
    with pytest.raises(error_rates.UnreachableError, match="does not come to"):
        with_value(fixed, tree, statistic, case)
    with pytest.raises(error_rates.UnreachableError, match="the nearest has"):
        with_value(steps, tree, statistic, case)


# ------------------------------------------------------------------------------------------ rates


@pytest.fixture
def toys(monkeypatch):
    """A claim about the mean of normal numbers, judged by a rule that is right."""
    toy_claims.install(monkeypatch)
    data = np.random.default_rng(0).standard_normal(50)
    group = xr.Dataset({"x": ("trial", data)}, coords={"trial": range(50)})
    shifted = Population(lambda t, amount: {"a": t["a"].to_dataset() + amount}, "numbers shifted")
    monkeypatch.setitem(POPULATIONS, "plain", shifted)
    claim = next(claim for claim in toy_claims.ledger() if claim.id == "plain")
    assert claim.ranges_of() == ((-0.5, 1.5), (-1, 2.5)) and primary(claim) == AS_STATED

    def rule(width):
        """The statistic: the mean with `width` times its interval."""

        def statistic(tree):
            e = mean(tree["a"].x.values)
            return Estimate(
                e.value, e.value + width * (e.low - e.value), e.value + width * (e.high - e.value)
            )

        monkeypatch.setitem(error_rates.STATISTICS, "plain", statistic)
        return measure(claim, tree_of({"a": group}, xr.DataTree()), 200, 1)

    return rule


@pytest.mark.slow
def test_a_right_rule_errs_as_often_as_its_interval_misses(toys):
    entry = toys(1.0)
    rates = rates_of(entry)
    assert 0.005 < rates["false, at the edge"] < LIMIT
    assert rates["true, in the middle"] == rates["true, at the edge"] == 0
    assert rates["false, outside"] == 0
    assert entry["trials"] == [50] and entry["how"] == "numbers shifted"
    assert [round(case["value"], 5) for case in entry["cases"]] == [0.5, -0.5, -1, 1.5, 2.5]
    sizes = [sum(case["counts"].values()) for case in entry["cases"]]
    assert sizes == [100, 200, 100, 200, 100]  # edges get twice as many


@pytest.mark.slow
def test_a_rule_with_too_short_an_interval_is_found_out(toys):
    rates = rates_of(toys(0.3))
    assert rates["false, at the edge"] > 0.15
    wide = toys(20.0)  # and one with far too long an interval never says anything
    assert max(rates_of(wide).values()) == 0
    assert all(set(case["counts"].values()) <= {0, 100, 200} for case in wide["cases"])
    assert all(case["counts"]["partly"] for case in wide["cases"])


# ------------------------------------------------------------------------------------ the program


@pytest.fixture
def program(monkeypatch, tmp_path):
    """The program on four toys: measured, without a population, without a result, unreachable."""
    toy_claims.install(monkeypatch)
    monkeypatch.setattr(error_rates, "ledger", toy_claims.ledger)
    monkeypatch.setattr(error_rates, "STATISTICS", toy_claims.STATISTICS)
    result = toy_claims.tree()
    monkeypatch.setattr(error_rates, "stored", {"toy": result, "other": None}.get)
    shifted = Population(
        lambda t, amount: {"numbers": t["numbers"].to_dataset() + amount}, "numbers shifted"
    )
    fixed = Population(lambda t, amount: {}, "nothing")
    for name, population in (("small", shifted), ("large", fixed), ("later", shifted)):
        monkeypatch.setitem(POPULATIONS, name, population)

    def run(*arguments, repeats=40):
        status = error_rates.main(
            ["--output", str(tmp_path / "rates.json"), "--repeats", str(repeats), *arguments]
        )
        return status, json.loads((tmp_path / "rates.json").read_text("utf-8"))

    return run


@pytest.mark.slow
def test_the_program_measures_what_it_can_and_says_what_it_leaves_out(program, capsys):
    status, record = program(repeats=400)  # so many that a rate of 2.5 % is seen to be below 5 %
    assert status == 0
    found = record["claims"]
    assert list(found) == ["small", "large", "plain", "later"]
    assert found["small"]["cases"][0]["counts"]["reproduced"] == 200
    assert found["small"]["reading"] == "printed bandwidth"
    assert found["small"]["choices"] == {"kernel": "rule"}
    assert found["small"]["partly"] == [-1, 2.5]
    assert "does not come to the wanted value" in found["large"]["skipped"]
    assert "no population" in found["plain"]["skipped"]
    assert "other has no stored result" in found["later"]["skipped"]
    assert (record["repeats"], record["seed"]) == (400, 1) and record["commit"]
    assert "later: skipped, other has no stored result" in capsys.readouterr().out


@pytest.mark.slow
def test_the_program_measures_single_claims_again(program, capsys):
    program()
    _, record = program("--only", "small", repeats=10)
    assert sum(record["claims"]["small"]["cases"][1]["counts"].values()) == 10
    assert list(record["claims"]) == ["small", "large", "plain", "later"]
    with pytest.raises(SystemExit):
        program("--only", "nothing")
    assert "no claims nothing in the ledger" in capsys.readouterr().err


@pytest.mark.slow
def test_the_program_fails_where_a_rate_is_too_large(program, monkeypatch, capsys):
    def certain(tree, **choices):
        value = toy_claims.statistic(tree, **choices).value
        return Estimate(value, value, value)

    monkeypatch.setattr(error_rates, "STATISTICS", toy_claims.STATISTICS | {"small": certain})
    status, _ = program()
    assert status == 1
    assert "small: false, at the edge is" in capsys.readouterr().err


# --------------------------------------------------------------------------------- what is stored


@pytest.fixture(scope="module")
def record():
    return json.loads(fairness_page.ERROR_RATES.read_text("utf-8"))


def test_the_stored_table_is_of_the_present_ledger(record):
    assert list(record["claims"]) == list(CLAIMS)
    for name, entry in record["claims"].items():
        if "skipped" not in entry:
            reading = primary(CLAIMS[name])
            ranges = CLAIMS[name].ranges_of(reading)
            assert entry["reading"] == reading.name and entry["choices"] == reading.choices, name
            assert tuple(
                tuple(map(float, entry[key])) for key in ("reproduced", "partly")
            ) == ranges, name  # fmt: skip


def test_only_claims_without_a_stored_result_are_left_out(record):
    """Once the result is there: python benchmarks/error_rates.py --only …"""
    for name, entry in record["claims"].items():
        if "skipped" in entry:
            claim = CLAIMS[name]
            assert stored(claim.experiment_of(primary(claim))) is None, (name, entry["skipped"])


def test_no_stored_rate_is_too_large(record):
    rates = {name: rates_of(e) for name, e in record["claims"].items() if "cases" in e}
    assert len(rates) >= 14
    assert [n for n, found in rates.items() if max(found.values()) >= LIMIT] == []
    edges = [
        sum(case["counts"].values())
        for entry in record["claims"].values()
        for case in entry.get("cases", ())
        if case["where"] == "edge"
    ]
    assert set(edges) == {record["repeats"]} and record["repeats"] >= 400


@pytest.mark.slow
@pytest.mark.parametrize("name", ["z-unbiased", "kl-monotone-mean-field", "determinant-order"])
def test_the_stored_table_comes_out_again(record, name):
    claim = CLAIMS[name]
    entry = measure(claim, stored(claim.experiment_of(primary(claim))), 60, record["seed"] + 1)
    for ours, theirs in zip(entry["cases"], record["claims"][name]["cases"], strict=True):
        assert ours["value"] == pytest.approx(theirs["value"], abs=1e-4)
        sizes = [sum(case["counts"].values()) for case in (ours, theirs)]
        for verdict, n in theirs["counts"].items():
            found = [ours["counts"][verdict], n]
            others = [size - count for size, count in zip(sizes, found, strict=True)]
            assert stats.fisher_exact([found, others]).pvalue > 1e-4, (ours, theirs)
