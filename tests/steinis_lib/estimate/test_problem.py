import math

import pytest
import torch

from steinis_lib.estimate.problem import Problem, cut_doubt
from steinis_lib.estimate.stated import LogProbError
from steinis_lib.importance import ImportanceSample


def normal(x):
    return -0.5 * x.square().sum(-1)


def problem(function, max_points=None):
    """Return a problem in 2-D, and the list of what it has spent."""
    spent = []
    return Problem(function, torch.zeros(2), spent.append, max_points), spent


def points(*first):
    return torch.tensor([[value, 1.0] for value in first])


def refusing(limit):
    def log_prob(x):
        if bool((x[:, 0] > limit).any()):
            raise ValueError("too large\nby far")
        return normal(x)

    return log_prob


def test_values_and_scores_are_those_of_log_prob():
    x = torch.randn(3, 4, 2)
    target, spent = problem(normal)
    value, score = target.log_prob_and_score(x)
    torch.testing.assert_close(value, normal(x))
    torch.testing.assert_close(score, -x)
    torch.testing.assert_close(target.score(x), -x)
    torch.testing.assert_close(target.log_prob(x), normal(x))
    assert (target.dim, spent) == (2, [12, 12, 12])
    assert not any(target.n_invalid.values())


def test_nan_and_zero_are_a_density_of_zero_and_are_counted():
    def log_prob(x):
        hole = torch.where(x[:, 0] > 1, torch.nan, 0.0) + torch.where(x[:, 0] < -1, -torch.inf, 0)
        return normal(x) + hole

    target, _ = problem(log_prob)
    value, score = target.log_prob_and_score(points(0.0, 2.0, 3.0, -2.0))
    assert value.tolist() == [-0.5, -math.inf, -math.inf, -math.inf]
    torch.testing.assert_close(score, torch.tensor([[0.0, -1.0], [0, 0], [0, 0], [0, 0]]))
    assert +target.n_invalid == {"nan": 2, "-inf": 1}


def test_an_exception_is_a_density_of_zero_at_the_points_that_raise_it():
    x = points(*range(16))
    target, spent = problem(refusing(14.5))
    value, score = target.log_prob_and_score(x)
    torch.testing.assert_close(value[:15], normal(x)[:15])
    torch.testing.assert_close(score[:15], -x[:15])
    assert value[15] == -math.inf
    assert +target.n_invalid == {"exception": 1}
    assert spent == [16, *[2] * 8, 1, 1]  # eighths of what fails


@pytest.mark.parametrize("kind", [KeyError, KeyboardInterrupt, LogProbError])
def test_other_errors_go_through(kind):
    def log_prob(x):
        raise kind

    with pytest.raises(kind):
        problem(log_prob)[0].log_prob(points(0.0))


def test_points_that_are_not_finite_do_not_reach_log_prob():
    seen = []

    def log_prob(x):
        seen.append(bool(torch.isfinite(x).all()))
        return normal(x)

    target, _ = problem(log_prob)
    value, score = target.log_prob_and_score(points(0.0, math.nan, math.inf))
    assert value.tolist() == [-0.5, -math.inf, -math.inf]
    assert (score[1:] == 0).all()
    assert seen == [True]


def test_a_gradient_that_is_not_finite_is_zero_and_counted():
    target, _ = problem(lambda x: normal(x) - x[:, 0].abs().sqrt())
    value, score = target.log_prob_and_score(points(0.0, 1.0))
    assert torch.isfinite(value).all()
    torch.testing.assert_close(score, torch.tensor([[0.0, 0.0], [-1.5, -1.0]]))
    assert +target.n_invalid == {"gradient": 1}


def test_an_infinite_density_is_refused_with_the_point():
    target, _ = problem(lambda x: normal(x) + torch.where(x[:, 0] > 2, torch.inf, 0.0))
    with pytest.raises(FloatingPointError, match=r"\+inf at the point \[3.0, 1.0\] \(1 of 2"):
        target.log_prob(points(0.0, 3.0))
    target.refuses_infinite = False
    assert target.log_prob(points(3.0, 0.0)).tolist()[0] == -math.inf
    assert target.n_invalid["+inf"] == 1


def test_calls_have_at_most_so_many_points():
    target, spent = problem(normal, max_points=3)
    x = torch.randn(2, 5, 2)
    torch.testing.assert_close(target.log_prob(x), normal(x))
    assert spent == [3, 3, 3, 1]


@pytest.mark.parametrize(
    ("log_prob", "message"),
    [
        (lambda x: normal(x).detach(), "log_prob has no gradient: .* such as .detach()"),
        (lambda x: torch.zeros(len(x)), "does not depend on its input"),
    ],
)
def test_a_missing_gradient_is_refused(log_prob, message):
    with pytest.raises(LogProbError, match=message):
        problem(log_prob)[0].score(points(0.0, 1.0))


def normal_sample(n=4000):
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(1))
    return ImportanceSample(x, torch.zeros(n))


@pytest.mark.parametrize("cut", [1.0, 2.0])
@pytest.mark.parametrize("how", ["nan", "exception"])
def test_a_density_that_is_cut_where_its_mass_is_is_doubted(cut, how, generator):
    """The damage that is stated is of the order of what is cut off."""
    function = {
        "nan": lambda x: normal(x) + torch.where(x[:, 0] > cut, torch.nan, 0.0),
        "exception": refusing(cut),
    }[how]
    target, _ = problem(function)
    x = normal_sample().particles
    log_w = target.log_prob(x) - normal(x)
    counts = target.n_invalid.copy()
    (doubt,) = cut_doubt(target, ImportanceSample(x, log_w), generator)
    lost = -math.log(0.5 + 0.5 * math.erf(cut / math.sqrt(2)))
    assert 0.6 * lost < doubt.damage < 3 * lost
    assert "if the density goes on there" in doubt.message
    assert ("NaN at" in doubt.message) == (how == "nan")
    assert ("(ValueError: too large by far)" in doubt.message) == (how == "exception")
    assert not doubt.fatal
    assert target.n_invalid == counts


def test_particles_may_have_fewer_digits_than_their_weights(generator):
    target, _ = problem(refusing(1.0))
    target.log_prob(points(9.0))
    sample = normal_sample()
    narrow = ImportanceSample(sample.particles.float(), sample.log_w)
    assert len(cut_doubt(target, narrow, generator)) == 1


def test_a_density_that_is_cut_far_from_its_mass_is_not(generator):
    target, spent = problem(refusing(4.5))
    assert cut_doubt(target, normal_sample(), generator) == ()
    assert spent == []  # nothing failed so far, so nothing was looked at
    target.log_prob(points(9.0))
    assert cut_doubt(target, normal_sample(), generator) == ()
    assert sum(spent) > 1000
