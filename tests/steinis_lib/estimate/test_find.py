import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Normal, StudentT

from steinis_lib import Gaussian, GaussianMixture, ImportanceSample, LogProb, estimate_log_z
from steinis_lib.estimate import find as module
from steinis_lib.estimate import routes


def banana(x):
    return -(x[:, 0] ** 4) / 4 - (x[:, 1] - x[:, 0] ** 2) ** 2


def funnel(x):
    neck = Normal(0.0, 3.0).log_prob(x[:, 0])
    return neck + Normal(0.0, (x[:, :1] / 2).exp()).log_prob(x[:, 1:]).sum(-1)


def separated(seed, dim, spread, scale):
    """Three unequal components, log Z = 0."""
    g = torch.Generator().manual_seed(seed)
    means = spread * torch.randn(3, dim, generator=g)
    return GaussianMixture(
        torch.tensor([0.5, 0.3, 0.2]).log(), means, torch.full((3, dim), float(scale))
    )


def near(found, log_z):
    return abs(found.log_z - log_z) < 4 * found.log_z_se


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def mentions(found, words):
    return any(words in warning for warning in found.warnings)


def test_badly_scaled_dimensions_need_no_tuning():
    scales = 10 ** torch.linspace(-1.5, 1.5, 20)
    found = estimate_log_z(lambda x: -0.5 * (x / scales).square().sum(-1), 20, n_samples=2000)
    assert near(found, 10 * math.log(2 * math.pi) + scales.log().sum())
    assert found.route == ("mixture", "mixture")
    assert found.log_z_se < 0.03
    assert found.warnings == ()


def test_separated_modes_are_found_from_a_wide_start():
    target = separated(1, 5, 3.0, 0.6)
    q0 = Gaussian.isotropic(torch.zeros(5), 5.0)
    found = estimate_log_z(target.log_prob, 5, q0=q0, n_samples=2000)
    assert near(found, 0.0)
    assert found.log_z_se < 0.03
    assert found.warnings == ()
    mean, error = found.expectation(lambda x: x)
    assert ((mean - target.mean).abs() < 4 * error).all()


def test_a_mode_out_of_reach_makes_two_runs_disagree():
    target = separated(0, 10, 3.0, 0.5)
    found = estimate_log_z(target.log_prob, 10, n_samples=4000)
    assert mentions(found, "two independent runs disagree")
    assert (found.log_z_runs < 0.1).all()
    assert found.log_z_runs.min() < -0.3


def test_tails_of_a_student_are_warned_of():
    found = estimate_log_z(lambda x: StudentT(1.5).log_prob(x).sum(-1), 2, n_samples=4000)
    assert found.pareto_k > 0.7
    assert mentions(found, "Pareto-k̂ is")


@pytest.mark.slow
def test_annealing_takes_over_where_a_mixture_is_a_bad_proposal(monkeypatch):
    """A skewed density in 8-D: coordinates are independent and log-gamma, so log Z is known."""
    monkeypatch.setattr(routes, "LENGTHS", (10, 40))
    shape = 0.5

    def log_gamma(x):
        return (shape * x - x.exp()).sum(-1)

    found = estimate_log_z(log_gamma, 8, n_samples=1000)
    assert found.route == ("annealing", "annealing")
    assert near(found, 8 * math.lgamma(shape))
    assert found.log_z_se < 0.2


@pytest.mark.slow
def test_z_is_unbiased_over_seeds(monkeypatch):
    """A skewed density in 1-D, log-gamma, with all choices made anew each time."""
    monkeypatch.setattr(module, "EXPLORERS", 30)
    monkeypatch.setattr(module, "EXPLORING", 20)
    monkeypatch.setattr(module, "FLOW", 8)

    def log_gamma(x):
        return (2 * x - x.exp()).sum(-1)

    found = [estimate_log_z(log_gamma, 1, n_samples=200, generator=seeded(i)) for i in range(40)]
    ratio = torch.tensor([f.log_z - math.lgamma(2.0) for f in found]).exp()
    error = ratio.std() / 40**0.5
    assert error < 0.02
    assert abs(ratio.mean() - 1) < 4 * error
    # And the stated standard errors are those seen, within 4 times the 11 % that 40 repeats give.
    stated = torch.tensor([f.log_z_se for f in found]).square().mean().sqrt()
    assert 0.56 < stated / ratio.std() < 1.44


def test_a_fit_that_has_not_settled_is_warned_of_and_one_that_has_is_not(generator):
    wide = torch.tensor([1e-3, 1e3])
    target = LogProb(lambda x: -0.5 * ((x - 5) / wide).square().sum(-1), 2)
    q0 = Gaussian.isotropic(torch.zeros(2))
    _, doubts = module._mixture(target, q0, generator)
    assert [doubt.cause for doubt in doubts] == ["unsettled"]
    for log_prob in (banana, lambda x: -0.5 * ((x - 5) / wide.sqrt()).square().sum(-1)):
        _, doubts = module._mixture(LogProb(log_prob, 2), q0, generator)
        assert doubts == []


@pytest.fixture
def to_maps(monkeypatch):
    """The route is forced to maps: the mixture's pilots are called bad, and those of maps good."""
    monkeypatch.setattr(module, "good", lambda _: False)
    monkeypatch.setattr(routes, "good", lambda _: True)


def test_folds_of_maps_are_reported(to_maps, monkeypatch):
    """The run pretends that a follower met a fold."""

    def folded(_, state, n, on_step):
        return replace(state, n_folds=state.n_folds + 1)

    monkeypatch.setattr(routes.HeldOutSteinIS, "run", folded)
    found = estimate_log_z(banana, 2, n_samples=400)
    assert found.route == ("maps", "maps")
    assert mentions(found, "not one-to-one")


@pytest.mark.parametrize(
    ("transitions", "falls"), [(4, True), pytest.param(60, False, marks=pytest.mark.slow)]
)
def test_a_held_out_divergence_that_still_falls_is_reported(
    to_maps, monkeypatch, transitions, falls
):
    """Four maps are too few for this density, and sixty enough."""
    monkeypatch.setattr(routes, "REFINE", transitions)
    found = estimate_log_z(banana, 2, n_samples=400)
    assert found.route == ("maps", "maps")
    assert mentions(found, "held-out KL was still falling") == falls


@pytest.mark.slow
def test_the_longest_annealing_path_is_no_proof_that_it_is_enough(monkeypatch):
    monkeypatch.setattr(routes, "LENGTHS", (3, 6))
    monkeypatch.setattr(routes, "REFINE", 1)
    found = estimate_log_z(funnel, 3, n_samples=400)
    assert "annealing" in found.route
    assert mentions(found, "longest path, 6 transitions")


def test_weights_of_either_run_can_give_warnings(generator):
    """Pooled with a good run, a bad one may look well."""
    log_w = 0.1 * torch.randn(2, 500, generator=generator)
    good = [ImportanceSample(row.unsqueeze(-1), row) for row in log_w]
    tail = -1.5 * torch.rand(500, generator=generator).log()  # weights are Pareto with k = 1.5
    heavy = ImportanceSample(tail.unsqueeze(-1), tail + good[1].log_z - tail.logsumexp(-1))
    found = module.weight_doubts((good[0], heavy))
    assert any("Pareto-k̂ is" in doubt.message for doubt in found)
    wide = torch.where(torch.arange(500) < 450, -9.0, torch.rand(500, generator=generator))
    wide = ImportanceSample(wide.unsqueeze(-1), wide - wide.logsumexp(-1) + math.log(500))
    found = module.weight_doubts((good[0], wide))
    assert any("of a run is 9% of its draws, where pilots had 50%" in d.message for d in found)


def test_weights_that_say_nothing_against_it_give_no_warnings(generator):
    log_w = 0.1 * torch.randn(2, 500, generator=generator)
    runs = [ImportanceSample(row.unsqueeze(-1), row) for row in log_w]
    assert module.weight_doubts((runs[0], runs[1])) == []
    apart = (runs[0], ImportanceSample(runs[1].particles, runs[1].log_w + 1))
    (doubt,) = module.weight_doubts(apart)
    assert "two independent runs disagree" in doubt.message
    few = ImportanceSample(log_w[0, :40].unsqueeze(-1), log_w[0, :40])
    (doubt,) = module.weight_doubts((few, few))
    assert "effective sample size is 79, below 100" in doubt.message
