from dataclasses import replace

import pytest
import torch

from steinis_lib import IMQ, RBF, SVGD, Gaussian, LogProb, PathIntegration, StepSize, ksd_squared


def test_integral_sums_ksd_before_each_move(skewed, wide, generator):
    kernel = RBF(bandwidth=1.5)
    method = PathIntegration(
        skewed, wide, n_particles=20, kernel=kernel, step_size=StepSize(0.2, 0.5)
    )
    state = method.init(generator)
    total, log_ratio = {"v": 0.0, "u": 0.0}, state.log_ratio
    for step in range(5):
        for statistic in total:
            total[statistic] += method.step_size(step) * ksd_squared(
                skewed, state.particles, kernel, statistic=statistic
            )
        state, _ = method.step(state)
    found = method.estimate(state)
    torch.testing.assert_close(found.kl, total["v"])
    torch.testing.assert_close(found.kl_u, total["u"])
    torch.testing.assert_close(found.log_z, total["v"] - log_ratio)
    torch.testing.assert_close(found.log_z_u, total["u"] - log_ratio)


@pytest.mark.parametrize("kind", [RBF, IMQ])
def test_estimates_against_derivatives_of_the_maps(skewed, wide, kind, generator):
    """KSD² is the mean of s·φ + ∇·φ over the particles: s and ∇·φ by autograd.

    The U-statistic leaves out κ(x, x) = |s|² + trace, with trace 2d/h for RBF and d/h for IMQ.
    """
    settings = {"n_particles": 9, "kernel": kind(bandwidth=1.3), "step_size": 0.3}
    sampler, svgd = (method(skewed, wide, **settings) for method in (PathIntegration, SVGD))
    start = sampler.init(generator)
    n, x, kl, kl_u = 9, start.particles, 0.0, 0.0
    trace = 2 * 2 / 1.3 if kind is RBF else 2 / 1.3
    for _ in range(4):
        s = torch.autograd.functional.jacobian(lambda x: skewed.log_prob(x).sum(), x)

        def phi(y, x=x, s=s):
            r = (x - y).square().sum(-1, keepdim=True)
            k = torch.exp(-r / 1.3) if kind is RBF else (1 + r / 1.3) ** -0.5
            slope = -2 / 1.3 * k if kind is RBF else -(k**3) / 1.3
            return (k * s + slope * (x - y)).mean(0)

        velocities = torch.stack([phi(y) for y in x])
        divergence = sum(torch.func.jacrev(phi)(y).trace() for y in x)
        v = ((s * velocities).sum() + divergence) / n
        own = s.square().sum(-1).mean() + trace
        kl, kl_u = kl + 0.3 * v, kl_u + 0.3 * (n * v - own) / (n - 1)
        x = x + 0.3 * velocities
    found = sampler.estimate(sampler.run(start, 4))
    log_ratio = (wide.log_prob(start.particles) - skewed.log_prob(start.particles)).mean()
    torch.testing.assert_close(found.kl, kl)
    torch.testing.assert_close(found.kl_u, kl_u)
    torch.testing.assert_close(found.log_z, kl - log_ratio)
    torch.testing.assert_close(found.log_z_u, kl_u - log_ratio)
    assert torch.equal(sampler.run(start, 4).particles, svgd.run(start, 4).particles)


def test_finds_kl_and_log_z_where_both_are_known():
    """From N(1.0, 1) to 3·N(0, 1) in 1-D: KL = 1/2 and log Z = log 3, with quantile particles."""
    target = LogProb(lambda x: -0.5 * x[:, 0] ** 2 - 0.9189385332 + 1.0986122887, 1)
    q0 = Gaussian.isotropic(torch.ones(1))
    method = PathIntegration(target, q0, kernel=RBF(bandwidth=4.0), step_size=0.05)
    state = method.init(torch.Generator().manual_seed(1))
    quantiles = 1 + torch.special.ndtri((torch.arange(100) + 0.5) / 100).unsqueeze(-1)
    exact = (-0.5 * (quantiles - 1) ** 2 + 0.5 * quantiles**2).mean() - 1.0986122887
    state = replace(state, particles=quantiles, log_ratio=exact)
    end = method.estimate(method.run(state, 600))
    torch.testing.assert_close(end.kl, torch.tensor(0.5), atol=0.02, rtol=0)
    torch.testing.assert_close(end.log_z, torch.tensor(3.0).log(), atol=0.02, rtol=0)


def test_neither_integral_ends_where_few_particles_have_come_to_rest(lopsided, generator):
    """K̂ goes on rising by the V-statistic, and falling by the U-statistic."""
    q0 = Gaussian.isotropic(torch.zeros(1))
    method = PathIntegration(lopsided, q0, n_particles=10, step_size=0.3)
    rest = method.run(method.init(generator), 600)
    later = method.run(rest, 100)
    assert (later.particles - rest.particles).abs().max() < 1e-6
    assert later.kl - rest.kl > 30 * 0.02
    assert later.kl_u - rest.kl_u < -30 * 0.2
