import itertools
import math

import pytest

from steinis_lib.companion.search import PATIENCE, Failure, Trial, best, search
from steinis_lib.companion.settings import TUNED, Setting, axes_of
from steinis_lib.companion.tuning import Axis
from steinis_lib.companion.tuning_records import (
    chosen,
    ends,
    trials_of,
    tuning_record,
    tuning_table,
)

FIRST, N = (0.05, 0.2, 0.8), 24
ALPHA = Axis("alpha", (0.1, 1.0, 10.0), 10**0.5)
BETA = Axis("beta", (0.0, 0.3, 0.6), 0.3, additive=True, high=1.0)
MULTIPLIER = Axis("multiplier", (5.0, 20.0), 2.0)


def bowl(alpha, beta, multiplier=None):
    """A concave score with its top there, in logarithms of what is geometric."""

    def evaluate(setting):
        gap = [math.log(setting.alpha / alpha), 3 * (setting.beta - beta)]
        if multiplier is not None:
            gap.append(math.log(setting.multiplier / multiplier))
        return -sum(x**2 for x in gap), 0.1, 7, Failure.NONE

    return evaluate


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
