import math

import pytest
import torch

from steinis_lib import RBF, Gaussian, GaussianMixture, SteinIS, StepSize
from steinis_lib.baselines.ais import AIS
from steinis_lib.baselines.annealing import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.pilots import annealing_pilot, steinis_pilot
from steinis_lib.companion.tuning import Trial, tune


def pilots(target, q0, generator):
    """Each method with a good step, one far too small, and one far too large."""
    return {
        "AIS": (
            annealing_pilot(lambda e: AIS(target, q0, linear_schedule(20), e), 30, generator),
            [1e-5, 0.1, 200.0],
            30 * 21,
        ),
        "HAIS": (
            annealing_pilot(lambda c: HAIS(target, q0, linear_schedule(20), *c), 30, generator),
            [(1e-3, 2), (0.4, 2), (40.0, 2)],
            30 * 41,
        ),
        "SteinIS": (
            steinis_pilot(
                lambda e: SteinIS(target, RBF(multiplier=2.0), StepSize(e)),
                *(q0, 30, 40, 20, generator),
            ),
            [1e-5, 0.3, 200.0],
            30 * 20,
        ),
    }


@pytest.mark.parametrize("method", ["AIS", "HAIS", "SteinIS"])
def test_the_obviously_best_step_is_chosen_at_equal_cost(method, generator):
    means = torch.tensor([[1.0, -0.4], [-0.6, 0.9]])
    target = GaussianMixture(torch.tensor([0.3, 0.7]).log(), means, 0.6 + means.abs() / 2)
    q0 = Gaussian.isotropic(torch.tensor([2.0, 1.5]))
    pilot, candidates, cost = pilots(target, q0, generator)[method]
    budget = 3 * 40 * cost + 7
    best, record = tune(candidates, pilot, budget)
    assert best == candidates[1]
    assert [trial.candidate for trial in record] == candidates
    for trial in record:
        assert 40 * cost <= trial.gradients <= budget // 3
    for worse in (record[0], record[2]):
        error = math.hypot(record[1].standard_error, worse.standard_error)
        assert worse.score == -math.inf or record[1].score - worse.score > 4 * error
    # Below log Z = 0, as log Z less a KL divergence must be.
    assert record[1].score < 4 * record[1].standard_error
    assert record[1].standard_error < 0.1


def test_merit_is_log_z_less_the_divergence_where_both_are_known(lopsided, generator):
    """One transition of AIS is plain importance sampling: the merit is log Z - KL(q0‖p)."""
    q0 = Gaussian.isotropic(torch.tensor([0.4]), 1.3)
    y = torch.linspace(-12, 12, 4801).unsqueeze(-1)
    log_q = q0.log_prob(y)
    exact = float((log_q.exp() * (lopsided.log_prob(y) - log_q)).sum() * 0.005)
    pilot = annealing_pilot(lambda e: AIS(lopsided, q0, linear_schedule(1), e), 50, generator)
    _, (trial,) = tune([0.1], pilot, 200_000)
    assert trial.standard_error < 0.003
    assert abs(trial.score - exact) < 4 * trial.standard_error
    steinis = steinis_pilot(lambda e: SteinIS(lopsided), q0, 20, 50, 1, generator)
    _, (moved,) = tune([0.1], steinis, 10_000)
    assert exact < moved.score < 0


def test_standard_error_is_that_over_repeats_and_batches_of_problems_are_averaged(
    skewed, wide, generator
):
    pilot = annealing_pilot(lambda e: AIS(skewed, wide, linear_schedule(5), e), 10, generator, (3,))
    merits, used = pilot(0.1, 6 * 10 * 3 * 500 + 1)
    assert merits.shape == (500,)
    assert used == 6 * 10 * 3 * 500
    _, (trial,) = tune([0.1], lambda c, allowed: (merits, used), used)
    expected = Trial(0.1, float(merits.mean()), float(merits.std() / math.sqrt(500)), used)
    assert trial == expected


def test_maps_that_fold_are_not_rewarded(lopsided, generator):
    q0 = Gaussian.isotropic(torch.zeros(1), 2.0)

    def pilot(allowed):
        return steinis_pilot(
            lambda e: SteinIS(lopsided, RBF(bandwidth=0.3), StepSize(e)),
            *(q0, 20, 20, 1, generator),
            folded_allowed=allowed,
        )

    best, record = tune([1.5, 0.1], pilot(0.0), 2 * 20 * 50)
    assert best == 0.1
    assert record[0].score == -math.inf
    assert record[0].standard_error == math.inf
    merits, used = pilot(0.9)(1.5, 20 * 50)
    assert 2 <= len(merits) < 50  # about half of the repeats fold, and are left out
    assert torch.isfinite(merits).all()
    assert used == 20 * 50


def test_failures_lose_and_overspending_is_refused():
    def pilot(candidate, allowed):
        if candidate == "raises":
            raise FloatingPointError("inf")
        value = {"nan": torch.nan, "zero weight": -torch.inf, "fine": -3.0}[candidate]
        return torch.tensor([value, -2.0]), allowed

    best, record = tune(["raises", "nan", "fine", "zero weight"], pilot, 40)
    assert best == "fine"
    assert [trial.score for trial in record] == [-math.inf, -math.inf, -2.5, -math.inf]
    assert [trial.gradients for trial in record] == [10] * 4
    with pytest.raises(ValueError, match="no candidate has a finite merit"):
        tune(["raises", "nan"], pilot, 40)
    with pytest.raises(ValueError, match="used 11 score evaluations of 10"):
        tune(["a"], lambda c, allowed: (torch.zeros(2), allowed + 1), 10)
    with pytest.raises(ValueError, match="no candidates"):
        tune([], pilot, 40)


def test_a_budget_too_small_is_refused(skewed, wide, generator):
    pilot = annealing_pilot(lambda e: AIS(skewed, wide, linear_schedule(9), e), 10, generator)
    with pytest.raises(ValueError, match=r"199 .* pay for 1 pilot runs of 100; at least 2"):
        tune([0.1, 0.2], pilot, 399)
