import pytest
import torch

from steinis_lib import IMQ, RBF, Gaussian, SteinIS, ksd_squared
from steinis_lib.stein.ksd import cross_ksd_squared


def double_loop(target, x, h):
    """κ_p for the RBF kernel as printed in eq. 7, pair by pair."""
    s, d = target.score(x), x.shape[-1]
    kappa = torch.zeros(len(x), len(x))
    for i in range(len(x)):
        for j in range(len(x)):
            u = x[i] - x[j]
            k = torch.exp(-(u @ u) / h)
            k_x, k_y = -2 / h * u * k, 2 / h * u * k
            k_xy = (2 * d / h - 4 / h**2 * (u @ u)) * k
            kappa[i, j] = k * (s[i] @ s[j]) + s[i] @ k_y + s[j] @ k_x + k_xy
    return kappa


def test_v_and_u_statistics_against_a_double_loop(skewed, generator):
    x = torch.randn(9, 2, generator=generator)
    kappa = double_loop(skewed, x, 1.1)
    kernel = RBF(bandwidth=1.1)
    torch.testing.assert_close(ksd_squared(skewed, x, kernel), kappa.mean())
    off = (kappa.sum() - kappa.trace()) / (9 * 8)
    torch.testing.assert_close(ksd_squared(skewed, x, kernel, statistic="u"), off)
    w = torch.rand(9, generator=generator).softmax(-1)
    torch.testing.assert_close(ksd_squared(skewed, x, kernel, weights=w), w @ kappa @ w)
    torch.testing.assert_close(
        cross_ksd_squared(skewed, x[:4], x[4:], kernel), kappa[4:, :4].mean()
    )


@pytest.mark.parametrize("kernel", [RBF(bandwidth=1.0), IMQ(bandwidth=1.0)])
def test_u_statistic_is_unbiased_and_zero_at_the_target(lopsided, kernel, generator):
    x = lopsided.sample((3000, 20), generator)
    u = ksd_squared(lopsided, x, kernel, statistic="u")
    assert abs(u.mean()) < 4 * u.std() / 3000**0.5
    v = ksd_squared(lopsided, x, kernel)
    assert v.mean() > 20 * v.std() / 3000**0.5  # the V-statistic's floor


class Line:
    """q_0 on a fine grid in 1-D: expectations under q_ℓ to quadrature accuracy."""

    def __init__(self, q0):
        self.y = torch.linspace(-12, 12, 2401).unsqueeze(-1)
        self.log_q = q0.log_prob(self.y)
        self.weights = self.log_q.exp() * 0.01

    def kl(self, target, state):
        return self.weights @ (state.log_q - target.log_prob(state.followers))


@pytest.mark.parametrize("m", [5, 40])
def test_kl_falls_at_the_rate_of_the_cross_form(lopsided, m, generator):
    """-dKL(q_ℓ‖p)/dt over a small step, for few leaders and for many; from both sides in ε."""
    q0 = Gaussian.isotropic(torch.tensor([0.4]), 1.3)
    line, kernel = Line(q0), RBF(bandwidth=0.9)
    leaders = q0.sample((m,), generator)
    rate = cross_ksd_squared(lopsided, leaders, line.y, kernel, weights=line.weights)
    slopes = []
    for epsilon in (2e-3, 1e-3):
        sampler = SteinIS(lopsided, q0, kernel=kernel, step_size=epsilon)
        start = sampler.start(leaders, line.y, line.log_q)
        end, _ = sampler.step(start)
        slopes.append((line.kl(lopsided, start) - line.kl(lopsided, end)) / epsilon)
    richardson = 2 * slopes[1] - slopes[0]  # removes the O(ε) term
    torch.testing.assert_close(richardson, rate, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_kl_falls_at_the_rate_of_ksd_in_the_mean_field(lopsided):
    """With the leaders spread over q_0's own quantiles, dKL/dt = -KSD² (eq. 16)."""
    q0 = Gaussian.isotropic(torch.tensor([0.4]), 1.3)
    line, kernel = Line(q0), RBF(bandwidth=0.9)
    u = (torch.arange(4000) + 0.5) / 4000
    leaders = (0.4 + 1.3 * torch.special.ndtri(u)).unsqueeze(-1)
    sampler = SteinIS(lopsided, q0, kernel=kernel, step_size=1e-4)
    start = sampler.start(leaders, line.y, line.log_q)
    end, _ = sampler.step(start)
    slope = (line.kl(lopsided, start) - line.kl(lopsided, end)) / 1e-4
    rate = ksd_squared(lopsided, line.y, kernel, weights=line.weights)
    torch.testing.assert_close(slope, rate, rtol=1e-3, atol=0)


def test_nonsense_is_refused(lopsided):
    x = torch.zeros(3, 1)
    with pytest.raises(ValueError, match="'v' or 'u'"):
        ksd_squared(lopsided, x, RBF(), statistic="w")
    with pytest.raises(ValueError, match="weights go with the V-statistic"):
        ksd_squared(lopsided, x, RBF(), statistic="u", weights=torch.ones(3) / 3)
    with pytest.raises(FloatingPointError, match="score"):
        ksd_squared(lopsided, torch.full((3, 1), torch.nan), RBF(bandwidth=1.0))
