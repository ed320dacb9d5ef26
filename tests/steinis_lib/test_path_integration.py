from dataclasses import replace

import torch

from steinis_lib import RBF, Gaussian, LogProb, PathIntegration, StepSize, ksd_squared


def test_integral_sums_ksd_before_each_move(skewed, wide, generator):
    method = PathIntegration(skewed, RBF(bandwidth=1.5), StepSize(0.2, 0.5))
    state = method.init(wide, 20, generator)
    total, log_ratio = {"v": 0.0, "u": 0.0}, state.log_ratio
    for step in range(5):
        for statistic in total:
            total[statistic] += method.step_size(step) * ksd_squared(
                skewed, state.particles, RBF(bandwidth=1.5), statistic=statistic
            )
        state, _ = method.step(state)
    torch.testing.assert_close(state.kl, total["v"])
    torch.testing.assert_close(state.kl_u, total["u"])
    torch.testing.assert_close(state.log_z, total["v"] - log_ratio)
    torch.testing.assert_close(state.log_z_u, total["u"] - log_ratio)


def test_finds_kl_and_log_z_where_both_are_known():
    """From N(1.0, 1) to 3·N(0, 1) in 1-D: KL = 1/2 and log Z = log 3, with quantile particles."""
    target = LogProb(lambda x: -0.5 * x[:, 0] ** 2 - 0.9189385332 + 1.0986122887, 1)
    method = PathIntegration(target, RBF(bandwidth=4.0), StepSize(0.05))
    state = method.init(Gaussian.isotropic(torch.ones(1)), 100, torch.Generator().manual_seed(1))
    quantiles = 1 + torch.special.ndtri((torch.arange(100) + 0.5) / 100).unsqueeze(-1)
    exact = (-0.5 * (quantiles - 1) ** 2 + 0.5 * quantiles**2).mean() - 1.0986122887
    state = replace(state, particles=quantiles, log_ratio=exact)
    end = method.run(state, 600)
    torch.testing.assert_close(end.kl, torch.tensor(0.5), atol=0.02, rtol=0)
    torch.testing.assert_close(end.log_z, torch.tensor(3.0).log(), atol=0.02, rtol=0)


def test_v_statistic_has_a_floor_that_the_u_statistic_lacks(lopsided, generator):
    """With few particles the V-statistic's integral keeps growing; both are recorded as such."""
    q0 = Gaussian.isotropic(torch.zeros(1))
    method = PathIntegration(lopsided, RBF(), StepSize(0.3))
    middle = method.run(method.init(q0, 10, generator, (50,)), 300)
    end = method.run(middle, 300)
    growth_v, growth_u = (end.kl - middle.kl).mean(), (end.kl_u - middle.kl_u).mean()
    assert growth_v > 0
    assert growth_u < growth_v
