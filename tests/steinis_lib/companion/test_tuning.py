import math

import pytest
import torch

from steinis_lib import RBF, Gaussian, GaussianMixture, SteinIS
from steinis_lib.baselines.ais import AIS
from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.methods import Setting, build_sampler
from steinis_lib.companion.tuning import (
    Trial,
    best,
    chosen,
    sampler_pilot,
    tune,
    tune_sampler,
    tuning_record,
)


def ais(target, q0, n_transitions, n_particles):
    """AIS as a function of its step."""
    schedule = linear_schedule(n_transitions)
    return lambda e: AIS(target, q0, schedule=schedule, step_size=e, n_particles=n_particles)


def hais(target, q0, n_transitions, n_particles):
    """HAIS as a function of its step and its leapfrogs."""
    schedule = linear_schedule(n_transitions)
    return lambda c: HAIS(
        target, q0, schedule=schedule, step_size=c[0], n_leapfrog=c[1], n_particles=n_particles
    )


def steinis(target, q0, n_leaders, n_followers, kernel):
    """SteinIS as a function of its step."""
    return lambda e: SteinIS(
        target, q0, kernel=kernel, step_size=e, n_leaders=n_leaders, n_followers=n_followers
    )


def methods(target, q0):
    """Each method with a good step, one far too small, one far too large; and a repeat's cost."""
    return {
        "AIS": (ais(target, q0, 20, 30), [1e-5, 0.1, 200.0], 30 * 21),
        "HAIS": (hais(target, q0, 20, 30), [(1e-3, 2), (0.4, 2), (40.0, 2)], 30 * 41),
        "SteinIS": (
            steinis(target, q0, 30, 40, RBF(multiplier=2.0)), [1e-5, 0.3, 200.0], 30 * 20
        ),
    }  # fmt: skip


@pytest.mark.parametrize("method", ["AIS", "HAIS", "SteinIS"])
def test_the_obviously_best_step_is_chosen_at_equal_cost(method, generator):
    means = torch.tensor([[1.0, -0.4], [-0.6, 0.9]])
    target = GaussianMixture(torch.tensor([0.3, 0.7]).log(), means, 0.6 + means.abs() / 2)
    q0 = Gaussian.isotropic(torch.tensor([2.0, 1.5]))
    make, candidates, cost = methods(target, q0)[method]
    budget = 3 * 40 * cost + 7
    record = tune(candidates, sampler_pilot(make, 20, generator), budget)
    assert best(record).candidate == candidates[1]
    assert [trial.candidate for trial in record] == candidates
    for trial in record:
        assert 40 * cost <= trial.gradients <= budget // 3
    for worse in (record[0], record[2]):
        error = math.hypot(record[1].standard_error, worse.standard_error)
        assert worse.score == -math.inf or record[1].score - worse.score > 4 * error
    # Below log Z = 0, as log Z less a KL divergence must be.
    assert record[1].score < 4 * record[1].standard_error
    assert record[1].standard_error < 0.1


def test_the_score_is_log_z_less_the_divergence_where_both_are_known(lopsided, generator):
    """One transition of AIS is plain importance sampling: the score is log Z - KL(q0‖p)."""
    q0 = Gaussian.isotropic(torch.tensor([0.4]), 1.3)
    y = torch.linspace(-12, 12, 4801).unsqueeze(-1)
    log_q = q0.log_prob(y)
    exact = float((log_q.exp() * (lopsided.log_prob(y) - log_q)).sum() * 0.005)
    (trial,) = tune([0.1], sampler_pilot(ais(lopsided, q0, 1, 50), 1, generator), 200_000)
    assert trial.standard_error < 0.003
    assert abs(trial.score - exact) < 4 * trial.standard_error
    pilot = sampler_pilot(steinis(lopsided, q0, 20, 50, RBF()), 1, generator)
    (moved,) = tune([0.1], pilot, 10_000)
    assert exact < moved.score < 0


def test_standard_error_is_that_over_repeats_and_batches_of_problems_are_averaged(
    skewed, wide, generator
):
    pilot = sampler_pilot(ais(skewed, wide, 5, 10), 5, generator, (3,))
    values, used = pilot(0.1, 6 * 10 * 3 * 500 + 1)
    assert values.shape == (500,)
    assert used == 6 * 10 * 3 * 500
    (trial,) = tune([0.1], lambda c, allowed: (values, used), used)
    expected = Trial(0.1, float(values.mean()), float(values.std() / math.sqrt(500)), used)
    assert trial == expected


def test_maps_that_fold_are_not_rewarded(lopsided, generator):
    q0 = Gaussian.isotropic(torch.zeros(1), 2.0)

    def pilot(allowed):
        make = steinis(lopsided, q0, 20, 20, RBF(bandwidth=0.3))
        return sampler_pilot(make, 1, generator, folded_allowed=allowed)

    record = tune([1.5, 0.1], pilot(0.0), 2 * 20 * 50)
    assert best(record).candidate == 0.1
    assert record[0].score == -math.inf
    assert record[0].standard_error == math.inf
    values, used = pilot(0.9)(1.5, 20 * 50)
    assert 2 <= len(values) < 50  # about half of the repeats fold, and are left out
    assert torch.isfinite(values).all()
    assert used == 20 * 50


def test_failures_lose_and_overspending_is_refused():
    def pilot(candidate, allowed):
        if candidate == "raises":
            raise FloatingPointError("inf")
        value = {"nan": torch.nan, "zero weight": -torch.inf, "fine": -3.0}[candidate]
        return torch.tensor([value, -2.0]), allowed

    record = tune(["raises", "nan", "fine", "zero weight"], pilot, 40)
    assert best(record).candidate == "fine"
    assert [trial.score for trial in record] == [-math.inf, -math.inf, -2.5, -math.inf]
    assert [trial.gradients for trial in record] == [10] * 4
    with pytest.raises(ValueError, match="no candidate has a finite score"):
        tune(["raises", "nan"], pilot, 40)
    with pytest.raises(ValueError, match="used 11 score evaluations of 10"):
        tune(["a"], lambda c, allowed: (torch.zeros(2), allowed + 1), 10)
    with pytest.raises(ValueError, match="no candidates"):
        tune([], pilot, 40)


def test_a_budget_too_small_is_refused(skewed, wide, generator):
    pilot = sampler_pilot(ais(skewed, wide, 9, 10), 9, generator)
    with pytest.raises(ValueError, match=r"199 .* pay for 1 pilot runs of 100; at least 2"):
        tune([0.1, 0.2], pilot, 399)


@pytest.mark.parametrize("method", ["steinis", "hais-10l", "ais"])
@pytest.mark.parametrize("batch_shape", [(), (3,)])
def test_a_sampler_is_tuned_with_the_same_number_of_repeats_for_each_setting(
    skewed, wide, method, batch_shape
):
    settings = [Setting(0.05), Setting(0.2)]

    def build(setting):
        return build_sampler(method, skewed, wide, setting, 4, n_leaders=6, n_followers=5)

    def streams():
        return torch.Generator().manual_seed(3)

    found = tune_sampler(settings, build, 4, streams(), repeats=7, batch_shape=batch_shape)
    scores = {"steinis": 4 * 6, "hais-10l": (4 * 10 + 1) * 5, "ais": (4 + 1) * 5}[method]
    cost = 7 * scores * math.prod(batch_shape)
    assert [trial.gradients for trial in found] == [cost] * 2
    pilot = sampler_pilot(build, 4, streams(), batch_shape)
    assert found == tune(settings, pilot, 2 * cost)
    values, _ = sampler_pilot(build, 4, streams(), batch_shape)(settings[0], cost)
    assert len(values) == 7 and found[0].score == float(values.mean())


def test_a_record_gives_back_the_best_candidate():
    settings = [Setting(0.1, 0.3, 2.0), Setting(0.2, refresh=0.4), Setting(0.3)]
    trials = [
        Trial(s, score, 0.1, 7) for s, score in zip(settings, (-2.0, -1.0, -3.0), strict=True)
    ]
    record = tuning_record(trials)
    assert chosen(record) == settings[1]
    assert record.gradients.values.tolist() == [[7, 7, 7]]
    assert chosen(tuning_record(trials[:1])) == settings[0]
