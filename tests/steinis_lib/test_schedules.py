import pytest
import torch

from steinis_lib import StepSize
from steinis_lib.schedules import step_at


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_step_sizes_fall_as_stated(beta):
    schedule = StepSize(0.3, beta)
    for transition in (0, 1, 7):
        assert schedule(transition) == pytest.approx(0.3 * (transition + 1) ** -beta)
    assert schedule(0) == 0.3


def test_a_number_is_the_step_of_every_transition_and_a_schedule_has_its_own():
    assert [step_at(0.2, transition) for transition in (0, 5)] == [0.2, 0.2]
    assert [step_at(lambda t: 1 / (1 + t), transition) for transition in (0, 3)] == [1.0, 0.25]
    assert type(step_at(torch.tensor(0.5), 0)) is float


@pytest.mark.parametrize("epsilon", [0.0, -0.1, torch.inf, torch.nan])
def test_a_step_that_is_not_positive_and_finite_is_refused_with_its_transition(epsilon):
    for step_size in (epsilon, lambda transition: epsilon):
        with pytest.raises(ValueError, match=f"finite, got {epsilon} at transition 3"):
            step_at(step_size, 3)


def test_wrong_settings_are_refused():
    for alpha in (0.0, -1.0, torch.nan):
        with pytest.raises(ValueError, match="alpha must be positive"):
            StepSize(alpha)
    with pytest.raises(ValueError, match="beta must not be negative"):
        StepSize(0.1, -0.5)
