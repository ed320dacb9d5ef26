import itertools
import math

import pytest
import torch

from steinis_lib import RBF, Gaussian, GaussianMixture, SteinIS
from steinis_lib.companion.methods import FAMILIES, TUNED, Setting, axes_of, build_sampler
from steinis_lib.companion.runner.compute import joined
from steinis_lib.companion.tuning import (
    PATIENCE,
    Axis,
    Failure,
    Trial,
    best,
    chosen,
    ends,
    search,
    trials_of,
    tune_sampler,
    tuning_record,
    tuning_table,
)

FIRST, N = (0.05, 0.2, 0.8), 24
ALPHA = Axis("alpha", (0.1, 1.0, 10.0), 10**0.5)
BETA = Axis("beta", (0.0, 0.3, 0.6), 0.3, additive=True, high=1.0)
MULTIPLIER = Axis("multiplier", (5.0, 20.0), 2.0)


def seeded():
    return torch.Generator().manual_seed(3)


def bowl(alpha, beta, multiplier=None):
    """A concave score with its top there, in logarithms of what is geometric."""

    def evaluate(setting):
        gap = [math.log(setting.alpha / alpha), 3 * (setting.beta - beta)]
        if multiplier is not None:
            gap.append(math.log(setting.multiplier / multiplier))
        return -sum(x**2 for x in gap), 0.1, 7, Failure.NONE

    return evaluate


# The search.


@pytest.mark.parametrize(("alpha", "beta"), [(0.004, 0.8), (90.0, 0.1), (0.7, 0.43)])
def test_the_best_is_found_inside_and_outside_of_the_first_grid(alpha, beta):
    record = tuning_record(search((ALPHA, BETA), bowl(alpha, beta), N))
    found = chosen(record)
    assert abs(math.log(found.alpha / alpha)) < math.log(10) / 8
    assert abs(found.beta - beta) < 0.08
    assert ends(record, (ALPHA, BETA)) == {"alpha": "inside", "beta": "inside"}


def test_three_axes_are_searched_together():
    axes = (Axis("alpha", (0.1, 1.0), 10**0.5), Axis("beta", (0.0, 0.6), 0.3, True), MULTIPLIER)
    found = best(search(axes, bowl(3.0, 0.45, 45.0), 40)).candidate
    assert abs(math.log(found.alpha / 3)) < 0.6
    assert abs(found.beta - 0.45) < 0.16
    assert abs(math.log(found.multiplier / 45)) < 0.4


@pytest.mark.parametrize("method", [*TUNED, "hais-full", "hais-partial"])
@pytest.mark.parametrize("n", [12, 24])
def test_every_method_tries_as_many_different_settings(method, n):
    """The best is in the first grid on all axes but one, so that few searches need to go on."""

    def peaked(setting):
        score = -abs(math.log(setting.alpha / 0.3))
        for axis in axes_of(method)[1:]:
            inner = axis.start[len(axis.start) // 2 if len(axis.start) > 2 else 0]
            score -= abs(getattr(setting, axis.name) - inner) / inner if inner else 0.0
        return score, 0.1, 7, Failure.NONE

    trials = search(axes_of(method), peaked, n)
    if len(trials) > n:  # the best was not surrounded yet
        assert "end of the range" in ends(tuning_record(trials[:n]), axes_of(method)).values()
        assert len(trials) <= PATIENCE * n
        n = len(trials)
    assert len({trial.candidate for trial in trials}) == len(trials) == n
    assert tuning_table(tuning_record(trials), axes_of(method), "X")["score evaluations"] == 7 * n


def test_what_stays_unspent_about_the_best_goes_to_the_others():
    axis = Axis("alpha", (1.0, 2.0, 4.0), 2.0)
    trials = search((axis,), lambda s: (-abs(math.log(s.alpha / 2)), 0.1, 1, 0), 20)
    values = sorted(trial.candidate.alpha for trial in trials)
    assert len(set(values)) == 20
    assert min(b / a for a, b in itertools.pairwise(values)) > 2 ** (1 / 8) - 1e-4


def test_natural_limits_are_met_and_never_passed():
    trials = search((ALPHA, BETA), bowl(1.0, 1.7), N)
    assert max(trial.candidate.beta for trial in trials) == 1.0
    assert chosen(tuning_record(trials)).beta == 1.0
    assert ends(tuning_record(trials), (ALPHA, BETA))["beta"] == "natural limit"
    below = search((ALPHA, BETA), bowl(1.0, -1.0), N)
    assert min(trial.candidate.beta for trial in below) == 0.0
    assert ends(tuning_record(below), (ALPHA, BETA))["beta"] == "natural limit"


@pytest.mark.parametrize(
    ("failure", "words"), [(Failure.DIVERGED, "diverges beyond"), (Failure.FOLDED, "folds beyond")]
)
def test_an_end_beyond_which_runs_fail_is_called_so(failure, words):
    def evaluate(setting):
        if setting.alpha > 5:
            return -math.inf, math.inf, 7, failure
        return bowl(40.0, 0.4)(setting)

    record = tuning_record(search((ALPHA, BETA), evaluate, N))
    assert 3 < chosen(record).alpha <= 5
    assert ends(record, (ALPHA, BETA)) == {"alpha": words, "beta": "inside"}
    row = tuning_table(record, (ALPHA, BETA), "SteinIS")
    counts = {Failure.DIVERGED: row["diverged"], Failure.FOLDED: row["folded"]}
    assert counts[failure] == sum(trial.failure == failure for trial in trials_of(record)) > 2
    assert sum(counts.values()) == counts[failure]


def test_a_search_whose_best_is_at_an_end_goes_on_until_it_is_inside():
    far = search((ALPHA, BETA), bowl(1e4, 0.3), 9)
    assert 9 < len(far) <= PATIENCE * 9
    first = ends(tuning_record(far[:9]), (ALPHA, BETA))
    assert first["alpha"] == "end of the range"
    assert ends(tuning_record(far), (ALPHA, BETA)) == {"alpha": "inside", "beta": "inside"}
    assert len(search((ALPHA, BETA), bowl(1.0, 0.3), 13)) == 13


def test_a_search_that_was_cut_short_says_so():
    trials = search((ALPHA, BETA), bowl(1e30, 0.3), 9)
    found = ends(tuning_record(trials), (ALPHA, BETA))
    assert len(trials) == PATIENCE * 9
    assert found["alpha"] == "end of the range"


def test_what_was_tried_far_away_on_another_axis_closes_no_side():
    def end_with(beta_above):
        tried = [(1.0, 0.0, -1.0), (0.3, 0.0, -2.0), (3.0, beta_above, -2.0)]
        trials = [Trial(Setting(a, b), score, 0.1, 7) for a, b, score in tried]
        return ends(tuning_record(trials), (ALPHA, BETA))["alpha"]

    assert end_with(0.3) == "inside"
    assert end_with(0.6) == "end of the range"


def test_while_all_fail_the_search_goes_to_smaller_steps():
    def evaluate(setting):
        if setting.alpha > 0.002:
            return -math.inf, math.inf, 7, Failure.DIVERGED
        return -setting.beta, 0.1, 7, Failure.NONE

    assert best(search((ALPHA, BETA), evaluate, N)).candidate.alpha < 0.002


def test_no_finite_score_at_all_is_an_error():
    with pytest.raises(ValueError, match="no candidate has a finite score"):
        search((ALPHA, BETA), lambda s: (math.nan, 0.0, 7, Failure.NONE), 12)


def test_fewer_candidates_than_the_first_grid_are_refused():
    with pytest.raises(ValueError, match="9 settings, but n_candidates is 8"):
        search((ALPHA, BETA), bowl(1.0, 0.3), 8)


def test_round_off_does_not_move_the_search():
    def path(noise):
        def evaluate(setting):
            score, *rest = bowl(0.7, 0.43)(setting)
            score = round(score, 1) - 1  # a staircase, on which many settings are tied
            return score * (1 + noise * math.sin(1e6 * setting.alpha)), *rest

        return [trial.candidate for trial in search((ALPHA, BETA), evaluate, N)]

    assert path(0.0) == path(1e-12)
    tied = [Trial(Setting(a), -1.0, 0.1, 7) for a in (0.1, 0.2)]
    assert chosen(tuning_record(tied)) == best(tied).candidate == Setting(0.1)


# The axes.


def test_an_axis_goes_on_beyond_its_values():
    assert ALPHA.places == pytest.approx((0, 2, 4))
    assert [ALPHA.at(k) for k in (-2, -1, 0.5, 5)] == [0.01, 0.0316228, 0.177828, 31.6228]
    assert [BETA.at(k) for k in (-1, 0, 0.5, 3, 4)] == [0.0, 0.0, 0.15, 0.9, 1.0]
    assert ALPHA.steps_between(0.1, 10.0) == pytest.approx(4)
    assert BETA.steps_between(0.9, 0.3) == pytest.approx(2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": ()},
        {"start": (1.0, 0.5)},
        {"start": (0.5, 0.5)},
        {"start": (0.5, 2.0), "high": 1.0},
        {"start": (0.0, 1.0)},
        {"start": (1.0,), "step": 1.0},
        {"start": (1.0,), "step": -1.0, "additive": True},
    ],
)
def test_an_axis_that_leads_nowhere_is_refused(wrong):
    with pytest.raises(ValueError, match="axis alpha"):
        Axis(**{"name": "alpha", "step": 2.0} | wrong)


# Pilots of samplers.


def a_mixture():
    means = torch.tensor([[1.0, -0.4], [-0.6, 0.9]])
    return GaussianMixture(torch.tensor([0.3, 0.7]).log(), means, 0.6 + means.abs() / 2)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["steinis-wide", "steinis-adagrad", "hais-1l", "ais"])
def test_the_chosen_setting_is_inside_and_its_score_below_log_z(method):
    q0 = Gaussian.isotropic(torch.tensor([2.0, 1.5]))

    def make(setting):
        return build_sampler(method, a_mixture(), q0, setting, 20, n_leaders=30, n_followers=30)

    trials = tune_sampler(axes_of(method), make, 20, seeded(), n_candidates=N, repeats=20)
    top = best(trials)
    worst = min(trial.score for trial in trials if trial.failure == Failure.NONE)
    assert top.score > worst + 4 * top.standard_error
    assert top.score < 4 * top.standard_error  # log Z = 0
    found = ends(tuning_record(trials), axes_of(method))
    assert "end of the range" not in found.values()


@pytest.mark.parametrize("method", ["steinis", "steinis-leaders", "hais-10l", "ais"])
@pytest.mark.parametrize("batch_shape", [(), (3,)])
def test_candidates_meet_the_same_draws_at_the_same_cost(skewed, wide, method, batch_shape):
    def make(setting):
        return build_sampler(method, skewed, wide, setting, 4, n_leaders=6, n_followers=5)

    stream = seeded()
    axes = (Axis("alpha", FIRST, 2.0),)
    trials = tune_sampler(axes, make, 4, stream, n_candidates=4, repeats=7, batch_shape=batch_shape)
    each = {"hais-10l": (4 * 10 + 1) * 5, "ais": (4 + 1) * 5}.get(method, 4 * 6)
    assert [trial.gradients for trial in trials] == [7 * each * math.prod(batch_shape)] * 4
    assert torch.equal(stream.get_state(), seeded().get_state())
    for trial in trials:
        run = make(trial.candidate)
        state = run.run(run.init(seeded(), batch_shape=(7, *batch_shape)), 4)
        values = run.importance_sample(state).log_w.mean(-1)
        if trial.failure == Failure.NONE and not (
            method.startswith("steinis") and bool((state.n_folds > 0).any())
        ):
            assert trial.score == pytest.approx(float(values.mean()), rel=1e-5)
            error = float(values.std() / math.sqrt(values.numel()))
            assert trial.standard_error == pytest.approx(error)


def test_a_reference_makes_problems_comparable_and_errors_can_count(skewed, wide):
    def make(setting):
        return build_sampler("hais-1l", skewed, wide, setting, 4, n_leaders=6, n_followers=50)

    reference = skewed.log_z.expand(7)

    def tuned(**options):
        axes = (Axis("alpha", FIRST, 2.0, low=FIRST[0], high=FIRST[-1]),)
        return tune_sampler(axes, make, 4, seeded(), n_candidates=3, repeats=7, **options)

    for plain, less, error in zip(
        tuned(), tuned(reference=reference), tuned(reference=reference, merit="error"), strict=True
    ):
        assert less.score == pytest.approx(plain.score - float(skewed.log_z), abs=1e-5)
        run = make(plain.candidate)
        state = run.run(run.init(seeded(), batch_shape=(7,)), 4)
        log_z = run.importance_sample(state).log_z
        assert error.score == pytest.approx(-float((log_z - skewed.log_z).abs().mean()), rel=1e-5)
        assert error.score < 0


def lopsided_run(lopsided, alphas):
    """Pilots of one transition with a narrow kernel: steps of 1.5 fold in about half of them."""
    q0 = Gaussian.isotropic(torch.zeros(1), 2.0)

    def make(setting):
        return SteinIS(
            lopsided, q0, kernel=RBF(bandwidth=0.3), step_size=setting.alpha, n_leaders=20,
            n_followers=20,
        )  # fmt: skip

    axes = (Axis("alpha", alphas, 2.0, low=alphas[0], high=alphas[-1]),)
    trials = tune_sampler(axes, make, 1, seeded(), n_candidates=len(alphas), repeats=50)
    folds = []
    for trial in trials:
        run = make(trial.candidate)
        state = run.run(run.init(seeded(), batch_shape=(50,)), 1)
        folds.append((run.importance_sample(state).log_w.mean(-1), state.n_folds > 0))
    return trials, folds


def test_maps_that_fold_in_most_runs_are_out_and_in_a_few_are_left_out(lopsided):
    trials, runs = lopsided_run(lopsided, (0.1, 1.3, 20.0))
    shares = [float(folded.double().mean()) for _, folded in runs]
    assert shares[0] == 0 < shares[1] <= 0.5 < shares[2]
    assert [trial.failure for trial in trials] == [Failure.NONE, Failure.NONE, Failure.FOLDED]
    values, folded = runs[1]
    assert trials[1].score == pytest.approx(float(values[~folded].mean()), rel=1e-5)
    assert trials[1].score != pytest.approx(float(values.mean()), rel=1e-5)
    assert trials[2].score == -math.inf and trials[2].standard_error == math.inf


@pytest.mark.parametrize("n_folded", [4, 5])
def test_half_of_the_runs_may_fold_and_no_more(skewed, wide, n_folded):
    folds = torch.tensor([1] * n_folded + [0] * (8 - n_folded))

    class Folding(SteinIS):
        def run(self, state, n_transitions, **options):
            state = super().run(state, n_transitions, **options)
            object.__setattr__(state, "n_folds", folds)
            return state

    def make(setting):
        return Folding(skewed, wide, step_size=setting.alpha, n_leaders=6, n_followers=6)

    def tuned():
        axes = (Axis("alpha", (0.05,), 2.0),)
        return tune_sampler(axes, make, 2, seeded(), n_candidates=1, repeats=8)

    if n_folded <= 4:
        assert tuned()[0].failure == Failure.NONE
    else:
        with pytest.raises(ValueError, match="no candidate has a finite score"):
            tuned()


def test_a_run_that_diverges_rules_its_setting_out(skewed, wide):
    def make(setting):
        return build_sampler("steinis", skewed, wide, setting, 60, n_leaders=6, n_followers=6)

    axes = (Axis("alpha", (0.01, 1e6), 10.0, low=0.01, high=1e6),)
    trials = tune_sampler(axes, make, 60, seeded(), n_candidates=2, repeats=3)
    assert [trial.failure for trial in trials] == [Failure.NONE, Failure.DIVERGED]
    assert trials[0].gradients == trials[1].gradients == 60 * 6 * 3
    assert best(trials).candidate.alpha == 0.01


# Records.


def test_a_record_gives_back_all_trials_and_the_best():
    settings = [Setting(0.1, 0.3, 2.0), Setting(0.2, refresh=0.4), Setting(0.3)]
    trials = [
        Trial(settings[0], -2.0, 0.1, 7),
        Trial(settings[1], -1.0, 0.2, 8),
        Trial(settings[2], -math.inf, math.inf, 7, Failure.FOLDED),
    ]
    record = tuning_record(trials)
    assert trials_of(record) == trials
    assert chosen(record) == settings[1]
    assert record.gradients.values.tolist() == [[7, 8, 7]]
    assert record.failure.dims == ("trial", "candidate")
    assert record.failure.values.tolist() == [[0, 0, 2]]


def test_a_row_of_the_table_says_what_was_spent_and_what_came_of_it():
    record = tuning_record(search(axes_of("steinis-double"), bowl(0.7, 0.43), N))
    row = tuning_table(record, axes_of("steinis-double"), "SteinIS, twice")
    setting = chosen(record)
    assert row == {
        "method": "SteinIS, twice",
        "score evaluations": 7 * N,
        "candidates": N,
        "diverged": 0,
        "folded": 0,
        "chosen": f"step {setting.alpha:.3g}, decay {setting.beta:.3g}, bandwidth × 2",
        "step": "inside",
        "decay": "inside",
        "bandwidth ×": "–",
        "refresh": "–",
    }
    assert {method for method in FAMILIES if len(axes_of(method)) == 2} == {"steinis-adagrad"}


def test_searches_of_one_cell_may_have_different_numbers_of_candidates():
    """The shorter ones are filled up with NaN, which is no candidate."""
    short = [Trial(Setting(0.1), -3.0, 0.1, 9), Trial(Setting(0.2), -2.0, 0.1, 9)]
    long = [*short, Trial(Setting(0.4), -1.0, 0.1, 9)]
    both = joined(tuning_record(t).assign_coords(trial=[i]) for i, t in enumerate((short, long)))
    assert trials_of(both.isel(trial=[0])) == short
    assert trials_of(both.isel(trial=[1])) == long
    assert chosen(both.isel(trial=[0])) == Setting(0.2)
    same = joined([tuning_record(short).assign_coords(trial=[i]) for i in range(2)])
    assert same.failure.dtype.kind == "i"  # and nothing changes where they are as long
