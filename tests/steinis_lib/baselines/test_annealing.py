import pytest
import torch

from steinis_lib import Gaussian
from steinis_lib.baselines.geometric_path import (
    GeometricPath,
    check_schedule,
    choose,
    linear_schedule,
    sigmoidal_schedule,
)
from steinis_lib.core.generators import fork, resume


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    "make", [linear_schedule, sigmoidal_schedule, lambda n: sigmoidal_schedule(n, 9.0)]
)
def test_schedules_rise_from_exactly_zero_to_exactly_one(make, n):
    beta = make(n)
    assert beta.shape == (n + 1,)
    assert beta[0] == 0
    assert beta[-1] == 1
    assert (beta.diff() > 0).all()
    torch.testing.assert_close(beta, 1 - beta.flip(0))  # both are antisymmetric about a half
    check_schedule(beta)


def test_sigmoidal_is_that_of_wu_et_al():
    t = torch.arange(11.0)
    s = 1 / (1 + torch.exp(-4 * (2 * t / 10 - 1)))
    torch.testing.assert_close(sigmoidal_schedule(10), (s - s[0]) / (s[10] - s[0]))
    assert sigmoidal_schedule(10)[1] < 0.3 * linear_schedule(10)[1]  # slow at the ends


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_path_is_geometric_and_its_score_is_its_gradient(lopsided, beta, generator):
    q0 = Gaussian.isotropic(torch.tensor([0.4]), 1.3)
    path = GeometricPath(q0, lopsided)
    x = torch.randn(2, 5, 1, generator=generator).requires_grad_(True)
    log_f, score = path.evaluate(x).log_prob(beta), path.evaluate(x).score(beta)
    mixed = q0.log_prob(x).exp() ** (1 - beta) * lopsided.log_prob(x).exp() ** beta
    torch.testing.assert_close(log_f.exp(), mixed)
    torch.testing.assert_close(score, torch.autograd.grad(log_f.sum(), x)[0])
    torch.testing.assert_close(path.score(x, beta), score)


class Counted:
    """A target that counts how often it is asked, and may only be asked jointly."""

    def __init__(self, target):
        self.target, self.dim, self.calls = target, target.dim, 0

    def log_prob_and_score(self, x):
        self.calls += 1
        return self.target.log_prob_and_score(x)


def test_one_evaluation_serves_every_beta(lopsided):
    target = Counted(lopsided)
    point = GeometricPath(lopsided, target).evaluate(torch.zeros(3, 1))
    for beta in (0.1, 0.5, 1.0):
        point.log_prob(beta), point.score(beta)
    assert target.calls == 1


def test_a_choice_leaves_what_is_not_finite_behind(lopsided):
    path = GeometricPath(lopsided, lopsided)
    old = path.evaluate(torch.tensor([[0.0], [1.0], [2.0]]))
    new = path.evaluate(torch.tensor([[0.5], [torch.nan], [torch.inf]]))
    assert new.is_finite().tolist() == [True, False, False]
    mixed = choose(new.is_finite(), new, old)
    assert mixed.is_finite().all()
    assert mixed.particles[:, 0].tolist() == [0.5, 1.0, 2.0]
    torch.testing.assert_close(mixed.score_p, lopsided.score(mixed.particles))


def test_a_forked_stream_is_new_and_goes_on_where_it_was(generator):
    a, b = fork(generator), fork(generator)
    assert not torch.equal(a, b)
    first = resume(a, generator.device)
    whole = torch.rand(20, generator=resume(a, generator.device))
    head = torch.rand(16, generator=first)
    tail = torch.rand(4, generator=resume(first.get_state(), generator.device))
    assert torch.equal(head, whole[:16])
    assert torch.equal(tail, whole[16:])


@pytest.mark.parametrize(
    "schedule",
    [[0.0, 0.5, 0.5, 1.0], [0.1, 1.0], [0.0, 0.9], [1.0, 0.0], [0.0], [0.0, torch.nan, 1.0]],
)
def test_wrong_schedules_are_refused(schedule):
    with pytest.raises(ValueError, match="from exactly 0 to exactly 1"):
        check_schedule(torch.tensor(schedule))


def test_schedules_out_of_range_are_refused():
    with pytest.raises(ValueError, match="transitions must be at least 1, got 0"):
        linear_schedule(0)
    with pytest.raises(ValueError, match="radius must be positive"):
        sigmoidal_schedule(5, 0.0)
