from types import SimpleNamespace

import pytest
import torch

from steinis_lib import Gaussian, LogProb
from steinis_lib.estimate import judge
from steinis_lib.estimate.pool import Round
from steinis_lib.estimate.space import Space

D = torch.float64


def run(log_w):
    return Round(log_w.unsqueeze(-1), log_w)


def pareto(k, n, generator):
    return -k * torch.rand(n, generator=generator, dtype=D).log()


def test_a_heavy_tail_is_doubted_in_nats(generator):
    doubt = judge.tail(pareto(1.2, 4000, generator))
    assert doubt.cause == "tail"
    assert doubt.damage > 0.3
    assert "non-centred" in doubt.message
    assert judge.tail(pareto(0.3, 4000, generator)) is None


def test_a_heavy_tail_of_what_does_not_matter_is_not(generator):
    """All weights are one but for hundredths: k̂ of these is above 1, and harmless."""
    log_w = torch.log1p(1e-4 * pareto(1.2, 4000, generator).exp().clamp(max=100))
    assert judge.excess(log_w) < 0.01
    assert judge.tail(log_w) is None


def test_few_draws_are_doubted():
    log_w = torch.full((1000,), -torch.inf, dtype=D)
    log_w[:100] = 0
    assert "worth 100" in judge.few(log_w).message
    assert not judge.few(log_w).fatal
    log_w[5:] = -torch.inf
    assert judge.few(log_w).fatal
    assert judge.few(torch.zeros(1000, dtype=D)) is None


def test_runs_that_are_apart_are_doubted(generator):
    first, second = (0.3 * torch.randn(2000, generator=generator, dtype=D) for _ in range(2))
    assert judge.disagreement([run(first), run(second)]) is None
    doubt = judge.disagreement([run(first), run(second + 0.2)])
    assert abs(doubt.damage - 0.2) < 0.05
    assert "disagree" in doubt.message


def test_modes_that_come_up_to_the_end_are_doubted():
    assert judge.modes(SimpleNamespace(missed=0.0)) is None
    assert "5.0%" in judge.modes(SimpleNamespace(missed=0.05)).message


@pytest.fixture
def looked(generator):
    """Whether a density is called improper from normal draws."""

    def look(function, dim=2):
        u = torch.randn(500, dim, generator=generator, dtype=D)
        weights = torch.full((500,), 1 / 500, dtype=D)
        q0 = Gaussian.isotropic(torch.zeros(dim, dtype=D))
        space = Space(LogProb(function, dim), q0)
        return judge.improper(space, u, weights, generator)

    return look


@pytest.mark.parametrize(
    "function",
    [
        lambda x: 0 * x.sum(-1),
        lambda x: x[:, 0] - x[:, 1] ** 2,
        lambda x: -0.5 * x[:, 0].square(),
        lambda x: -x.square().sum(-1).log1p(),  # as 1/r², in two dimensions
    ],
)
def test_infinite_integrals_are_recognised(looked, function):
    doubt = looked(function)
    assert doubt.cause == "improper"
    assert doubt.fatal


@pytest.mark.parametrize(
    "function",
    [
        lambda x: -0.5 * x.square().sum(-1),
        lambda x: -x.square().log1p().sum(-1),  # independent Cauchy: as 1/r² along an axis
        lambda x: -1.5 * x.square().sum(-1).log1p(),  # a bivariate Cauchy, as 1/r³
        lambda x: torch.where(x.abs().amax(-1) < 5, 0.0, -torch.inf) + 0 * x.sum(-1),
        lambda x: (-0.5 * x.square().sum(-1)).clamp(min=-300.0),  # as transforms do
    ],
)
def test_finite_ones_are_not(looked, function):
    assert looked(function) is None


def test_an_overflow_far_away_is_forgiven(looked):
    """As `Problem` raises it where log_prob is +inf."""

    def overflowing(x):
        if bool((x.abs() > 1e6).any()):
            raise FloatingPointError
        return -0.5 * x.square().sum(-1)

    assert looked(overflowing) is None


def test_no_weight_at_all_is_fatal(generator):
    nothing = run(torch.full((10,), -torch.inf, dtype=D))
    (doubt,) = judge.doubts_of(None, None, [nothing, nothing], generator)
    assert doubt.fatal
