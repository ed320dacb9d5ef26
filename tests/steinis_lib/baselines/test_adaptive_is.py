import math
from dataclasses import replace

import pytest
import torch
from annealing_checks import same

from steinis_lib import LogProb, StepSize, load_state, save_state
from steinis_lib.baselines import AdaptiveIS, AdaptiveISState
from steinis_lib.baselines.adaptive_is import stochastic_gradient
from steinis_lib.companion.sections.s3_adaptive_is.mixture_weights import optimal_weights
from steinis_lib.targets.mixtures import FullCovarianceMixture

OBJECTIVES = ["variance", "cross-entropy"]
UPDATES = ["mirror", "projected"]
GRID = torch.cartesian_prod(torch.linspace(-8, 8, 201), torch.linspace(-7, 11, 201))
LOG_VOLUME = math.log(16 / 200 * 18 / 200)


def adaptive(target, q0, objective="variance", update="mirror", step_size=0.1, **settings):
    return AdaptiveIS(
        target, q0, objective=objective, update=update, step_size=step_size, **settings
    )


@pytest.fixture
def normalised(skewed):
    return LogProb(lambda x: skewed.function(x) - skewed.log_z, 2)


@pytest.fixture
def components():
    """Five components that cover `skewed`; unequal weights, correlations, one far too wide."""
    scale_trils = torch.tensor(
        [
            [[0.7, 0.0], [0.5, 0.7]],
            [[0.6, 0.0], [-0.4, 0.7]],
            [[0.9, 0.0], [0.0, 0.5]],
            [[2.0, 0.0], [0.0, 2.0]],
            [[0.8, 0.0], [0.3, 1.1]],
        ]
    )
    means = torch.tensor([[1.3, 0.8], [-0.9, 0.5], [0.3, 0.2], [0.0, 1.0], [1.8, 2.2]])
    return FullCovarianceMixture(
        torch.tensor([0.1, 0.15, 0.2, 0.25, 0.3]).log(), means, scale_trils
    )


def value_and_gradient(objective, components, target, pi):
    """The objective by quadrature, and its gradient by autograd."""
    pi = pi.clone().requires_grad_(True)
    log_p, log_q = target.log_prob(GRID), components.log_components(GRID).exp() @ pi
    integrand = {"variance": (2 * log_p).exp() / log_q, "cross-entropy": -log_p.exp() * log_q.log()}
    value = integrand[objective].sum() * math.exp(LOG_VOLUME)
    (gradient,) = torch.autograd.grad(value, pi)
    return value.item(), gradient


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("update", UPDATES)
def test_a_step_goes_against_an_unbiased_gradient(
    normalised, components, objective, update, generator
):
    """g is read off 50,000 independent steps, too short to reach a boundary of the simplex."""
    eta = 1e-7
    sampler = adaptive(normalised, components, objective, update, eta, n_particles=4)
    start = sampler.init(generator, batch_shape=(50_000,))
    end, info = sampler.step(start)
    if update == "mirror":  # known up to a constant
        g = (start.log_pi - end.log_pi) / eta
    else:
        g = (start.log_pi.exp() - end.log_pi.exp()) / eta
    _, exact = value_and_gradient(objective, components, normalised, start.log_pi[0].exp())
    g, exact = g - g.mean(-1, keepdim=True), exact - exact.mean()
    error = g.std(0) / len(g) ** 0.5
    assert (error < 0.1 * exact.abs().max()).all()
    assert ((g.mean(0) - exact).abs() < 4 * error).all()
    assert (exact.abs() > 20 * error).any()
    torch.testing.assert_close(
        info.log_w, normalised.log_prob(info.particles) - components.log_prob(info.particles)
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_gradients_of_several_draws_are_means(objective, generator):
    log_w = torch.randn(3, 6, generator=generator)
    log_w[0, 0] = -torch.inf
    log_ratio = torch.randn(3, 6, 4, generator=generator)
    power = {"variance": 2, "cross-entropy": 1}[objective]
    expected = -(log_w.exp().unsqueeze(-1) ** power * log_ratio.exp()).mean(-2)
    torch.testing.assert_close(stochastic_gradient(log_w, log_ratio, objective), expected)
    nothing = stochastic_gradient(log_w[:1, :1], log_ratio[:1, :1], objective)
    assert torch.equal(nothing, torch.zeros(1, 4))


RATES = {
    ("variance", "mirror"): 0.2,
    ("variance", "projected"): 0.03,
    ("cross-entropy", "mirror"): 0.5,
    ("cross-entropy", "projected"): 0.1,
}


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("update", UPDATES)
def test_runs_approach_the_exact_optimum(normalised, components, objective, update, generator):
    rate = StepSize(RATES[objective, update], 0.5)
    sampler = adaptive(normalised, components, objective, update, rate, n_particles=10)
    end = sampler.run(sampler.init(generator, batch_shape=(4,)), 1000)
    best = optimal_weights(
        components.log_components(GRID), normalised.log_prob(GRID), LOG_VOLUME, objective
    )

    def excess(pi):
        return value_and_gradient(objective, components, normalised, pi)[0] - best.value

    before = excess(components.log_weights.exp())
    for i in range(4):
        assert -1e-6 < excess(end.mean_pi[i]) < 0.05 * before
    q = sampler.proposal(end)
    torch.testing.assert_close(q.log_weights.exp(), end.mean_pi)
    assert torch.equal(sampler.proposal(end, averaged=False).log_weights, end.log_pi)
    assert torch.equal(q.means, components.means)


@pytest.mark.parametrize("update", UPDATES)
def test_z_is_unbiased_while_the_weights_move(skewed, components, update, generator):
    """Z ≠ 1 here; 20 steps of one draw, in 4000 independent runs."""
    rate = StepSize({"mirror": 0.02, "projected": 0.002}[update], 0.5)
    sampler = adaptive(skewed, components, "variance", update, rate, floor=0.02)
    end = sampler.run(sampler.init(generator, batch_shape=(4000,)), 20)
    assert (end.log_pi - components.log_weights).abs().mean() > 0.1
    ratio = (sampler.estimate(end).log_z - skewed.log_z).exp()
    error = ratio.std() / 4000**0.5
    assert error < 0.01
    assert abs(ratio.mean() - 1) < 4 * error


@pytest.mark.parametrize("update", UPDATES)
def test_the_standard_error_is_the_spread_while_the_weights_move(
    skewed, components, update, generator
):
    rate = StepSize({"mirror": 0.02, "projected": 0.002}[update], 0.5)
    sampler = adaptive(skewed, components, "variance", update, rate, n_particles=20, floor=0.02)
    found = sampler.estimate(sampler.run(sampler.init(generator, batch_shape=(1000,)), 20))
    scores = (found.log_z - skewed.log_z) / found.log_z_se
    assert scores.std() == pytest.approx(1, abs=4 / 2000**0.5)


def test_the_state_sums_up_the_run(normalised, components, generator):
    rate = StepSize(0.02, 0.5)
    sampler = adaptive(normalised, components, "variance", "mirror", rate, n_particles=3)
    start = sampler.init(generator, batch_shape=(2,))
    drawn_from, log_w, etas = [start.log_pi], [], []

    def watch(state, info):
        drawn_from.append(state.log_pi)
        log_w.append(info.log_w)
        etas.append(info.step_size)

    end = sampler.run(start, 8, on_step=watch)
    estimate, w = sampler.estimate(end), torch.cat(log_w, -1).exp()
    torch.testing.assert_close(end.mean_pi, torch.stack(drawn_from[:-1]).exp().mean(0))
    torch.testing.assert_close(estimate.log_z, w.mean(-1).log())
    torch.testing.assert_close(estimate.log_z_se, w.std(-1) / w.mean(-1) / 24**0.5)
    assert end.n_draws == sampler.n_evaluations(8) == 24
    assert end.transition == 8
    assert etas == [0.02 / (1 + t) ** 0.5 for t in range(8)]
    torch.testing.assert_close(sampler.proposal(start).log_weights, start.log_pi)
    with pytest.raises(ValueError, match="no Ẑ before the first step"):
        sampler.estimate(start)


@pytest.mark.parametrize("update", UPDATES)
def test_the_floor_holds_and_without_it_weights_vanish(normalised, components, update, generator):
    def run(floor):
        sampler = adaptive(normalised, components, "variance", update, 0.3, floor=floor)
        return sampler.run(sampler.init(generator, batch_shape=(3,)), 60).log_pi.exp()

    pi = run(0.01)
    assert (pi >= 0.01 - 1e-15).all()
    assert (pi.min(-1).values < 0.01 + 1e-12).all()
    assert (run(0.0).min(-1).values < 1e-3).all()
    torch.testing.assert_close(pi.sum(-1), torch.ones(3))
    raised = adaptive(normalised, components, "variance", update, 1.0, floor=0.15)
    start = raised.init(generator).log_pi.exp()
    torch.testing.assert_close(start[:2], torch.tensor([0.15, 0.15]))
    torch.testing.assert_close(start[3:] / start[2], torch.tensor([0.25, 0.3]) / 0.2)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("update", UPDATES)
def test_weights_that_overflow_leave_the_run_finite(
    skewed, components, objective, update, generator
):
    loud = LogProb(lambda x: skewed.function(x) + 900, 2)
    sampler = adaptive(loud, components, objective, update, 1.0, floor=0.01)
    end = sampler.run(sampler.init(generator, batch_shape=(50,)), 10)
    estimate = sampler.estimate(end)
    for tensor in (end.log_pi, end.mean_pi, estimate.log_z, estimate.log_z_se):
        assert torch.isfinite(tensor).all()
    assert (end.log_pi.logsumexp(-1).abs() < 1e-12).all()
    assert (estimate.log_z > 800).all()


def test_draws_where_the_density_is_zero_count_as_zero(lopsided, generator):
    edge = 0.5
    two = FullCovarianceMixture(
        torch.tensor([0.4, 0.6]).log(), torch.tensor([[-1.0], [1.0]]), 1.5 * torch.ones(2, 1, 1)
    )
    half = LogProb(lambda x: torch.where(x[:, 0] > edge, -torch.inf, lopsided.log_prob(x)), 1)
    sampler = adaptive(half, two, step_size=0.02)
    end = sampler.run(sampler.init(generator, batch_shape=(2000,)), 20)
    normals = torch.distributions.Normal(lopsided.means[:, 0], lopsided.scales[:, 0])
    z = lopsided.log_weights.exp() @ normals.cdf(torch.tensor(edge))
    ratio = sampler.estimate(end).log_z.exp() / z
    error = ratio.std() / 2000**0.5
    assert error < 0.01
    assert abs(ratio.mean() - 1) < 4 * error
    nowhere = LogProb(lambda x: x.sum(-1) * 0 - torch.inf, 1)
    sampler = adaptive(nowhere, two, step_size=0.02)
    start = sampler.init(generator)
    after, _ = sampler.step(start)
    assert sampler.estimate(after).log_z == -torch.inf
    assert sampler.estimate(after).log_z_se.isnan()
    torch.testing.assert_close(after.log_pi, start.log_pi)


@pytest.mark.parametrize("update", UPDATES)
def test_continuing_equals_one_long_run_also_from_disk(
    normalised, components, update, generator, tmp_path
):
    rate = StepSize(0.01, 0.5)
    sampler = adaptive(normalised, components, "variance", update, rate, n_particles=2)
    start = sampler.init(generator, batch_shape=(3,))
    whole = sampler.run(start, 9)
    for state in (start, sampler.run(start, 4)):
        save_state(state, tmp_path / "run.safetensors")
        restored = load_state(AdaptiveISState, tmp_path / "run.safetensors")
        left = 9 - int(state.transition)
        assert same(sampler.run(state, left), whole)
        assert same(sampler.run(restored, left), whole)
    assert not torch.equal(sampler.init(generator).rng, sampler.init(generator).rng)


def test_batches_are_independent_problems(normalised, components, generator):
    sampler = adaptive(normalised, components, update="projected", step_size=StepSize(0.01, 0.5))
    start = sampler.init(generator, batch_shape=(3,))
    end = sampler.run(start, 10)
    turned = start.log_pi.clone()
    turned[0] = turned[0].flip(0)
    other = sampler.run(replace(start, log_pi=turned), 10)
    assert not torch.equal(other.log_pi[0], end.log_pi[0])
    assert torch.equal(other.log_pi[1:], end.log_pi[1:])
    assert torch.equal(other.log_sum_w[1:], end.log_sum_w[1:])
    assert not torch.equal(end.log_pi[1], end.log_pi[2])


def test_each_problem_may_have_its_own_components(normalised, components, generator):
    shift = torch.tensor([0.0, 0.4])[:, None, None]
    own = FullCovarianceMixture(
        components.log_weights, components.means + shift, components.scale_trils
    )
    sampler = adaptive(normalised, own, step_size=StepSize(0.01, 0.5))
    state, info = sampler.step(sampler.init(generator))
    assert state.log_pi.shape == (2, 5)
    first, second = (
        FullCovarianceMixture(components.log_weights, components.means + s, components.scale_trils)
        for s in (0.0, 0.4)
    )
    expected = [q.log_prob(x) for q, x in zip((first, second), info.particles, strict=True)]
    log_p = normalised.log_prob(info.particles)
    torch.testing.assert_close(log_p - info.log_w, torch.stack(expected))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "reverse-kl"}, "objective must be one of .*got 'reverse-kl'"),
        ({"update": "newton"}, "update must be one of .*got 'newton'"),
        ({"n_particles": 0}, "n_particles must be at least 1, got 0"),
        ({"floor": -0.1}, r"floor must be in \[0, 1/K\) with K=5"),
        ({"floor": 0.2}, r"floor must be in \[0, 1/K\) with K=5"),
        ({"floor": torch.nan}, r"floor must be in \[0, 1/K\) with K=5"),
        ({"step_size": 0.0}, "step_size must be positive and finite"),
    ],
)
def test_settings_out_of_range_are_refused(normalised, components, settings, message):
    with pytest.raises(ValueError, match=message):
        adaptive(normalised, components, **settings)


def test_nonsense_is_refused(normalised, lopsided, components, generator):
    with pytest.raises(ValueError, match="q0 has d=2, but the target has d=1"):
        adaptive(lopsided, components)
    for eta in (0.0, -1.0, torch.nan, torch.inf):
        sampler = adaptive(normalised, components, step_size=lambda _, eta=eta: eta)
        with pytest.raises(ValueError, match="step_size must be positive and finite"):
            sampler.step(sampler.init(generator))
    for bad in (torch.nan, torch.inf):
        broken = LogProb(lambda x, bad=bad: x.sum(-1) * 0 + bad, 2)
        sampler = adaptive(broken, components)
        with pytest.raises(FloatingPointError, match=r"log_prob is (nan|inf) at particle"):
            sampler.step(sampler.init(generator, batch_shape=(2,)))
