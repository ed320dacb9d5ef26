import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
import xarray as xr
from scipy.stats import mannwhitneyu

from steinis_lib.companion import comparison, verification
from steinis_lib.companion.comparison import ABSOLUTE, FACTOR, LEVEL, RELATIVE, Comparison
from steinis_lib.companion.parameters import Parameters
from steinis_lib.companion.rounding import spread_between
from steinis_lib.companion.runner import first_states
from steinis_lib.companion.runner.compute import compute
from steinis_lib.companion.runner.experiment import Cell, Experiment, compute_chunk
from steinis_lib.companion.search import Failure, Trial
from steinis_lib.companion.settings import Setting
from steinis_lib.companion.tuning_records import tuning_record
from steinis_lib.companion.verification import Request
from steinis_lib.core.algorithm import Algorithm

PLAIN = Parameters()


@pytest.fixture
def spreads(monkeypatch):
    """What was measured: nothing, until a test fills it."""
    table = {}
    monkeypatch.setattr(verification, "measured", lambda: table)
    return table


def recompute(experiment, stored, seed=0, parameters=PLAIN):
    jobs = verification.choose_chunks(experiment, parameters, seed)
    request = Request(experiment, parameters, stored, jobs)
    return verification.recompute([request])[experiment.name]


def problems(comparisons):
    return [c.problem for c in comparisons if c.problem]


def dataset(*values, **coords):
    """A variable x of trials 0, 1, …, each with the numbers given for it."""
    array = np.array(values)
    dims = ("trial", *coords) if coords else ("trial", "place")[: array.ndim]
    return xr.Dataset({"x": (dims, array)}, coords={"trial": range(len(array)), **coords})


def compare(stored, fresh, spread=None):
    return comparison.compare(stored, fresh, {} if spread is None else {"x": spread})


def test_what_is_missing_is_named():
    old = dataset([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert problems(compare(old.isel(trial=slice(0, 0)), old)) == ["trials [0, 1] are not stored"]
    assert problems(compare(old.rename(x="y"), old)) == [
        "x is only in the fresh result", "y is only in the stored result",
    ]  # fmt: skip
    assert problems(compare(old.isel(place=slice(0, 2)), old)) == [
        "x is {'trial': 2, 'place': 2} in the stored result, {'trial': 2, 'place': 3} afresh"
    ]


def test_times_are_not_compared():
    slow, new = dataset(3.0, 3.0), dataset(1.0, 1.0)
    for each in (slow, new):
        each["x"].attrs["units"] = "s"
    assert compare(slow, new) == []
    del slow["x"].attrs["units"]
    assert "x differs in 2 of 2" in problems(compare(slow, new))[0]


@pytest.mark.parametrize("spread", [0.0, 3e-6])
@pytest.mark.parametrize("x", [0.0, -2.0, 500.0])
def test_the_tolerance_is_absolute_and_relative_and_so_many_spreads(x, spread):
    tolerance = ABSOLUTE + RELATIVE * abs(x) + FACTOR * spread
    stored = dataset(x, 900.0, -900.0)  # the others make the variable vary much more
    for share, wrong in ((0.99, False), (1.01, True)):
        (found,) = compare(stored, dataset(x + share * tolerance), spread)
        assert found.how == "numbers" and found.deviation == pytest.approx(share, rel=1e-6)
        assert bool(found.problem) == wrong
    assert f"stored {x}, afresh" in found.problem
    assert f"tolerance {tolerance:.3g}" in found.problem


def test_a_variable_that_was_never_measured_is_compared_strictly():
    assert problems(compare(dataset(1.0, 5.0), dataset(1 + 2e-6)))
    assert not problems(compare(dataset(1.0, 5.0), dataset(1 + 0.9e-6)))
    found = comparison.compare(dataset(1.0, 5.0), dataset(1 + 2e-6), {"y": 0.1})
    assert problems(found)


def test_the_largest_deviation_is_reported_with_the_first_place():
    old, new = dataset([1.0, 2.0], [3.0, 4.0]), dataset([1.0, 2.1], [3.0, 4.2])
    (found,) = compare(old, new)
    assert found.deviation == pytest.approx(0.2 / (ABSOLUTE + 4 * RELATIVE))
    assert "differs in 2 of 4 numbers, first at {'trial': 0, 'place': 1}" in found.problem
    assert "stored 2.0, afresh 2.1" in found.problem


def test_trials_are_matched_by_their_number_and_dimensions_by_their_name():
    old = dataset([1.0, 2.0], [3.0, 4.0], [5.0, 6.0])
    new = old.isel(trial=[2, 1]).transpose("place", "trial")
    assert compare(old, new) == [Comparison("x", "numbers", 0.0)]
    assert problems(compare(old, new.assign_coords(trial=[1, 2])))


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_must_be_so_on_both_sides(special):
    plain, odd = dataset(1.0, 2.0), dataset(1.0, special)
    assert compare(odd, odd) == [Comparison("x", "numbers", 0.0)]
    for old, new in ((plain, odd), (odd, plain)):
        (found,) = compare(old, new)
        assert found.how == "numbers" and found.deviation > 1e3
        assert "differs in 1 of 2 numbers, first at {'trial': 1}" in found.problem
    if not np.isnan(special):
        assert problems(compare(odd, dataset(1.0, -special)))


@pytest.mark.parametrize(("values", "other"), [([3, 5], [3, 6]), ([True, False], [True, True])])
def test_integers_and_booleans_are_compared(values, other):
    assert compare(dataset(*values), dataset(*values))[0].problem == ""
    assert "differs in 1 of 2 numbers" in compare(dataset(*values), dataset(*other))[0].problem


def test_spreads_of_transitions_are_kept_apart_and_others_have_the_largest():
    far = [-900.0, -900.0, -900.0]
    old = dataset([0.0] * 3, far, transitions=[10, 20, 30])
    new = dataset([0.9e-4, 0.9e-4, 0.9e-4], transitions=[10, 20, 30])
    (found,) = compare(old, new, {"10": 1e-8, "20": 1e-6})  # 30 was never measured
    assert "differs in 1 of 3 numbers, first at {'trial': 0, 'transitions': 0}" in found.problem
    (found,) = compare(old, new, {"10": 1e-6, "20": 1e-8})
    assert "differs in 1 of 3 numbers, first at {'trial': 0, 'transitions': 1}" in found.problem


def test_a_single_trial_is_chaotic_only_against_its_own_size():
    """Nothing varies there, and no rank test can be made."""
    old = dataset([5.0, 5.0], transitions=[1, 2])
    new = dataset([5.3, 5.3], transitions=[1, 2])
    spreads = {"1": 1e-3, "2": 1e-2}  # allowed: 0.1, and 1 > 0.1 · 5
    by_numbers, not_at_all = compare(old, new, spreads)
    assert "differs in 1 of 2 numbers" in by_numbers.problem
    assert "first at {'trial': 0, 'transitions': 0}" in by_numbers.problem
    assert (not_at_all.how, not_at_all.problem) == ("none", "")


# ------------------------------------------------------------------------------------- searches


def a_search(n=20, **changes):
    """The record of a search with n candidates, of which every fourth diverged."""
    trials = [
        Trial(Setting(0.1 * (i + 1), refresh=0.5), -((i - 7.0) ** 2) - 1, 0.3, 900)
        if i % 4
        else Trial(Setting(0.1 * (i + 1), refresh=0.5), -math.inf, math.inf, 900, Failure.DIVERGED)
        for i in range(n)
    ]
    record = tuning_record(trials).assign_coords(trial=[0])
    for name, (where, value) in changes.items():
        record[name][0, where] = value
    return record


def test_the_same_search_agrees():
    (found,) = comparison.compare(a_search(), a_search(), {})
    assert (found.variable, found.how, found.problem) == ("search", "numbers", "")
    assert found.deviation == comparison.FEW


@pytest.mark.parametrize(("n_alike", "wrong"), [(4, False), (3, False), (2, True), (0, True)])
def test_a_fifth_of_the_candidates_that_worked_must_be_alike(n_alike, wrong):
    """Of 20 candidates 15 worked."""
    scores = np.where(np.isfinite(a_search().score[0]), -1000.0, -np.inf)
    if n_alike:
        places = np.flatnonzero(np.isfinite(scores))[:n_alike]
        scores[places] = a_search().score[0, places]
    (found,) = comparison.compare(a_search(), a_search(score=(slice(None), scores)), {})
    assert bool(found.problem) == wrong
    assert (f"of 15 candidates of a search only {n_alike} have" in found.problem) == wrong


def test_a_search_may_turn_elsewhere_after_its_first_grid():
    """What comes after the turn is not compared."""
    elsewhere = a_search(alpha=(slice(8, None), 7.0), score=(slice(8, None), -5.0))
    longer = a_search(25)
    for fresh in (elsewhere, longer):
        (found,) = comparison.compare(a_search(), fresh, {})
        assert found.problem == ""
    early = a_search(alpha=(3, 7.0))
    (found,) = comparison.compare(a_search(), early, {})
    assert "candidate 3 of a search is another one" in found.problem


def test_what_a_candidate_was_given_must_be_the_same():
    (found,) = comparison.compare(a_search(), a_search(gradients=(2, 901)), {})
    assert "candidate 2 of a search is another one" in found.problem


def test_a_part_that_one_search_lacks_is_named():
    (found,) = comparison.compare(a_search(), a_search().drop_vars("score"), {})
    assert found.problem == "score of a search: only in one of the results"


def test_what_a_search_has_beside_candidates_is_compared_as_ever():
    first = a_search().assign(x=("trial", [1.0]))
    found = comparison.compare(first, first.assign(x=("trial", [1.1])), {})
    assert [(c.variable, bool(c.problem)) for c in found] == [("search", False), ("x", True)]


# --------------------------------------------------------------------- comparing in distribution

N_TRIALS, N_CHUNK = 400, 20
TRANSITIONS = (5, 20, 100, 200)


@dataclass(frozen=True)
class MapState:
    x: torch.Tensor


@dataclass(frozen=True)
class LogisticMap(Algorithm[MapState, None]):
    """x ← r x (1 - x), which doubles a rounding error at each step."""

    r: float = 4.0

    def init(self, generator, *, batch_shape=()):
        return MapState(torch.rand(batch_shape, generator=generator))

    def step(self, state):
        return MapState(self.r * state.x * (1 - state.x)), None

    def n_evaluations(self, n_transitions):
        return n_transitions


def iterate(p, chunk, r=4.0, towards=None):
    """Iterate the map; `towards`: from a start that is moved by one unit in the last place."""
    algorithm = LogisticMap(r)
    state = algorithm.init(chunk.generator(), batch_shape=(chunk.n_trials,))
    if towards is not None:
        state = MapState(torch.nextafter(state.x, torch.tensor(towards)))
    rows, done = [], 0
    for n in TRANSITIONS:
        state, done = algorithm.run(state, n - done), n
        rows.append(state.x.numpy())
    return xr.Dataset(
        {"x": (("trial", "transitions"), np.stack(rows, 1))}, {"transitions": list(TRANSITIONS)}
    )


def chaos(n_trials=N_TRIALS, n_chunk=N_CHUNK, **settings):
    """The experiment whose program is `iterate` with some settings."""
    run = partial(iterate, **settings)
    return Experiment("chaos", Parameters, lambda p: [Cell("map", n_trials, run, n_chunk)])


def spreads_of(stored, **settings):
    """The spreads of both variables that one chunk shows under another rounding."""
    experiment = chaos(**settings)
    ((cell, chunk),) = verification.choose_chunks(experiment, Parameters(), 77)
    fresh = compute_chunk(cell, Parameters(), chunk)
    old = stored["map"].to_dataset().sel(trial=fresh.trial)
    return {str(v): spread_between(old[v], fresh[v]) for v in fresh.data_vars}


@pytest.fixture(scope="module")
def chaotic():
    """The stored result of the chaotic experiment, and its measured spreads."""
    stored = compute(chaos(), Parameters())
    return stored, spreads_of(stored, towards=1.0)


def late(comparisons):
    """The comparison in distribution."""
    (found,) = (c for c in comparisons if c.how == "distribution")
    return found


def test_rounding_errors_of_the_chaotic_experiment_grow_as_meant(chaotic):
    spread = chaotic[1]["x"]
    assert spread["5"] < 1e-13 < spread["20"] < 1e-9 < 0.1 < spread["100"]
    assert chaotic[1]["first_states"] < 1e-13


def test_chaos_passes_early_by_numbers_and_late_in_distribution(chaotic, spreads):
    stored, measured = chaotic
    spreads["chaos"] = {"map": measured}
    for seed in range(3):
        (check,) = recompute(chaos(towards=0.0), stored, seed)  # not as in the measurement
        assert check.problems == []
        assert [(c.variable, c.how) for c in check.comparisons] == [
            ("first_states", "numbers"), ("x", "numbers"), ("x", "distribution"),
        ]  # fmt: skip
        assert all(c.deviation < 1 for c in check.comparisons)
        assert check.n_nudged == 0
    spreads["chaos"] = {}  # without what was measured, it is measured now
    (check,) = recompute(chaos(towards=0.0), stored)
    assert check.problems == [] and check.n_nudged == 1
    assert [(c.variable, c.how) for c in check.comparisons] == [
        ("first_states", "numbers"), ("x", "numbers"), ("x", "distribution"),
    ]  # fmt: skip


def test_another_program_is_found_at_its_first_states_and_at_the_end(chaotic, spreads):
    stored, measured = chaotic
    spreads["chaos"] = {"map": measured}
    (check,) = recompute(chaos(r=0.9), stored)
    start, early, end = check.comparisons
    assert (start.variable, start.how) == ("first_states", "numbers") and start.deviation > 1e3
    assert (early.variable, early.how) == ("x", "numbers") and early.problem
    assert end.how == "distribution" and end.deviation > 1
    assert "x is distributed otherwise than in the stored trials" in end.problem
    assert len(check.problems) == 3


def test_a_small_change_of_the_program_is_found_at_its_first_states(chaotic, spreads):
    """The end looks the same, as all of the map's parameters near 4 do."""
    stored, measured = chaotic
    spreads["chaos"] = {"map": measured}
    (check,) = recompute(chaos(r=4 - 1e-4), stored)
    assert [c.variable for c in check.comparisons if c.problem] == ["first_states", "x"]
    assert late(check.comparisons).problem == ""


def test_another_seed_is_found_at_its_first_states(chaotic, spreads):
    stored, measured = chaotic
    spreads["chaos"] = {"map": measured}
    (check,) = recompute(chaos(), stored, parameters=Parameters(seed=2))
    assert "first_states" in [c.variable for c in check.comparisons if c.problem]


@pytest.mark.parametrize(
    ("change", "which"),
    [
        (lambda x: x + 0.4, "location"),
        (lambda x: x - 0.4, "location"),
        (lambda x: 0.5 + 40 * (x - 0.5), "dispersion"),
        (lambda x: 0.5 + 0.05 * (x - 0.5), "dispersion"),
    ],
)
def test_a_shift_and_a_change_of_spread_at_the_end_are_found(chaotic, change, which):
    stored, measured = chaotic
    old = stored["map"].to_dataset()
    new = old.isel(trial=slice(0, N_CHUNK))
    assert late(comparison.compare(old, new, measured)).deviation < 1
    wrong = new.assign(x=new.x.where(new.transitions < 100, change(new.x)))
    found = late(comparison.compare(old, wrong, measured))
    assert found.deviation > 1 and f"stored trials: {which}, p = " in found.problem
    (early,) = (c for c in comparison.compare(old, wrong, measured)[1:] if c.how == "numbers")
    assert early.problem == ""


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_chaos_does_not_hide_what_is_not_finite(chaotic, special):
    stored, measured = chaotic
    old = stored["map"].to_dataset()
    new = old.isel(trial=slice(0, N_CHUNK))
    wrong = new.assign(x=new.x.where(new.transitions < 200, special))
    assert late(comparison.compare(old, wrong, measured)).problem or np.isnan(special)
    wrong = new.assign(x=new.x.where(new.transitions < 100, special))
    assert "location" in late(comparison.compare(old, wrong, measured)).problem
    everywhere = old.assign(x=old.x.where(old.transitions < 100, special))
    found = late(comparison.compare(everywhere, wrong, measured))
    assert found.problem == "" and 0 <= found.deviation < 1


def test_too_few_trials_are_not_compared(spreads):
    few = {"n_trials": 8, "n_chunk": 2}
    stored = compute(chaos(**few), Parameters())
    spreads["chaos"] = {"map": spreads_of(stored, towards=1.0, **few)}
    for settings in ({"towards": 0.0}, {}):
        (check,) = recompute(chaos(**few, **settings), stored)
        assert [c.how for c in check.comparisons] == ["numbers", "numbers", "none"]
        assert check.problems == []
    (check,) = recompute(chaos(r=3.7, **few), stored)
    assert [bool(c.problem) for c in check.comparisons] == [True, True, False]


def test_trials_are_too_few_where_no_order_of_them_would_be_improbable_enough():
    rng = np.random.default_rng(5)
    for n, n_all, enough in ((5, 30, False), (5, 100, True), (1, 5000, False), (2, 3000, True)):
        assert (2 / math.comb(n_all, n) <= LEVEL) == enough
        old = dataset(*rng.lognormal(size=n_all))
        for new in (old.isel(trial=slice(0, n)), old.isel(trial=slice(0, n)) + 1e6):
            (found,) = compare(old, new, 1.0)
            assert found.how == ("distribution" if enough else "none")
            assert bool(found.problem) == (enough and float(new.x.max()) > 1e5)


def test_the_chunk_itself_is_not_among_the_trials_that_it_is_compared_with():
    rng = np.random.default_rng(6)
    old = dataset(*rng.lognormal(size=100))
    old["x"][:5] += 1e6
    assert problems(compare(old, old.isel(trial=slice(0, 5)), 1e6))


# The rank tests' level.


def simulated(n_rows, decimals):
    """Rows of 500 skewed numbers, of which the first 5 are a chunk's; rounded ones have ties."""
    rows = np.random.default_rng(7).lognormal(size=(n_rows, 500))
    return rows if decimals is None else rows.round(decimals)


def p_values(rows, n=5):
    """The p-values of location and dispersion of each row."""
    here, there = rows[:, :n], rows[:, n:]
    centre = np.median(there, axis=1, keepdims=True)
    return np.array([
        [comparison._rank_test(*pair) for pair in zip(*sides, strict=True)]
        for sides in ((here, there), (abs(here - centre), abs(there - centre)))
    ])  # fmt: skip


def in_distribution(row, n=5):
    values = xr.DataArray(row, dims="trial", name="x")
    return comparison._compare_distributions(values[n:], values[:n])


@pytest.mark.parametrize("decimals", [None, 1])
def test_a_chunk_is_found_by_the_smaller_of_the_two_p_values(monkeypatch, decimals):
    monkeypatch.setattr(comparison, "LEVEL", 0.01)
    rows = simulated(60, decimals)
    smallest = p_values(rows).min(0)
    found = [in_distribution(row) for row in rows]
    expected = np.log(smallest) / math.log(0.01)
    np.testing.assert_allclose([c.deviation for c in found], expected, rtol=1e-9)
    assert [bool(c.problem) for c in found] == list(smallest < 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("decimals", [None, 1])
def test_each_rank_test_keeps_its_level(decimals):
    n = 20_000
    for p in p_values(simulated(n, decimals)):
        for level in (0.01, 0.001):
            sigmas = ((p < level).mean() - level) / math.sqrt(level * (1 - level) / n)
            assert sigmas < 4
            assert sigmas > (-4 if decimals is None else -math.inf)  # ties make a test stricter


def test_the_rank_test_agrees_with_another_library_and_counts_orders_exactly():
    rng = np.random.default_rng(9)
    here, there = rng.lognormal(size=5), rng.lognormal(size=95)
    expected = mannwhitneyu(here, there, method="exact").pvalue
    assert comparison._rank_test(here, there) == pytest.approx(expected, rel=1e-12)
    assert comparison._rank_test(here + 1e6, there) == pytest.approx(2 / math.comb(100, 5))
    assert comparison._rank_test(np.zeros(5), np.zeros(95)) > 0.01  # ties say nothing


@pytest.mark.parametrize(("n", "n_all", "decimals"), [(5, 500, 1), (9, 40, None), (9, 40, 1)])
def test_whatever_is_compared_in_distribution_can_fail(n, n_all, decimals):
    there = np.random.default_rng(8).lognormal(size=n_all)
    there = there if decimals is None else there.round(decimals)
    old = dataset(*there)
    (found,) = compare(old, old.isel(trial=slice(0, n)) + 1e6, 1.0)
    assert found.how == "none" or found.problem


@pytest.mark.parametrize("noise", [0.0, 1.1e-16])
@pytest.mark.parametrize("n", [2, 20])
def test_rounding_noise_about_a_constant_is_no_chaos(n, noise):
    old = dataset(*[1.0, 1.0 - noise, 1.0] * 40)
    elsewhere = old.isel(trial=slice(0, n)) * 0 + (1.0 - 2.2e-16)
    assert compare(old, elsewhere, 2.2e-16)[0].problem == ""  # found to be distributed otherwise
    assert [c.how for c in compare(old, elsewhere, 2.2e-16)] == ["numbers"]
    assert problems(compare(old, 2 * elsewhere, 2.2e-16))  # not found, or not compared


def first_states_of(values, decided):
    """Trials of first states ``(trial, state, tensor)``, decided in 32 bits or not."""
    attributes = {first_states.DECISIONS: "float32"} if decided else {}
    dims = ("trial", *first_states.DIMENSIONS)
    return xr.Dataset(
        {first_states.NAME: (dims, values, attributes)}, coords={"trial": range(len(values))}
    )


@pytest.mark.parametrize("decided", [True, False])
@pytest.mark.parametrize("state", [0, 3])
def test_a_few_particles_may_move_otherwise_after_the_start_if_decisions_are_in_32_bits(
    decided, state
):
    values = np.random.default_rng(1).normal(size=(12, 5, 7)) * [1, 1, 1, 5, 1, 2, 1]
    allowed = comparison.MOVES * values[:, state, 3].std()
    stored = first_states_of(values, False)  # what is stored need not say so
    for share, wrong in ((0.9, not decided or state == 0), (1.1, True)):
        fresh = values[:1].copy()
        fresh[0, state, 3] += share * allowed
        (found,) = comparison.compare(stored, first_states_of(fresh, decided), {})
        assert bool(found.problem) == wrong, (decided, state, share)


def test_where_decisions_are_in_32_bits_another_stream_of_random_numbers_is_found():
    rng = np.random.default_rng(2)
    stored, fresh = rng.normal(size=(12, 5, 7)), rng.normal(size=(1, 5, 7))
    fresh[0, 0] = stored[0, 0]  # the same start
    (found,) = comparison.compare(
        first_states_of(stored, False), first_states_of(fresh, True), {}
    )  # fmt: skip
    assert found.problem and found.deviation > 5


def test_one_trial_alone_may_differ_by_a_share_of_its_numbers():
    stored = np.full((1, 5, 7), 4.0)
    for shift, wrong in ((0.9, False), (1.1, True)):
        (found,) = comparison.compare(
            first_states_of(stored, False),
            first_states_of(stored + shift * (np.arange(5) > 0)[:, None], True), {},
        )  # fmt: skip
        assert bool(found.problem) == wrong
