import math

import pytest
import torch

from steinis_lib.estimate.student import StudentMixture
from steinis_lib.estimate.warp import Warped, driving_order, fitted

D = torch.float64


def equal(n):
    return torch.full((n,), 1 / n, dtype=D)


def funnel(n, generator):
    """x₂ decides over the widths of x₀ and x₁."""
    z = torch.randn(n, 3, generator=generator, dtype=D)
    neck = 1.5 * z[:, 2:]
    return torch.cat([z[:, :2] * (neck / 2).exp(), neck], -1)


def banana(n, generator):
    z = torch.randn(n, 2, generator=generator, dtype=D)
    return torch.stack([z[:, 0] ** 2 + 0.1 * z[:, 1], z[:, 0]], -1)


@pytest.mark.parametrize(("draw", "first"), [(funnel, 2), (banana, 1)])
def test_what_bends_others_comes_first(draw, first, generator):
    u = draw(2000, generator)
    y = (u - u.mean(0)) / u.std(0)
    assert int(driving_order(y, equal(2000))[0]) == first


@pytest.mark.parametrize("draw", [funnel, banana])
def test_curved_densities_become_nearly_normal(draw, generator):
    """By the mean of log N(z) + log|∂z/∂u| of fresh draws, which the true density bounds."""
    warp = fitted(draw(3000, generator), equal(3000))
    fresh = draw(3000, generator)
    z, log_det = warp.to_z(fresh)
    d = fresh.shape[-1]
    half = 0.5 * d * math.log(2 * math.pi)
    fit = float((-0.5 * z.square().sum(-1) - log_det).mean()) - half
    log_sd = {funnel: math.log(1.5), banana: math.log(0.1)}[draw]  # E[log|∂u/∂z|]
    truth = -0.5 * d - half - log_sd
    assert truth - 0.03 < fit < truth + 0.1


def test_the_map_is_inverse_and_its_determinant_right(generator):
    u = funnel(500, generator)
    warp = fitted(u, equal(500))
    z, log_det = warp.to_z(u[:20])
    back, same = warp.to_u(z)
    torch.testing.assert_close(back, u[:20])
    torch.testing.assert_close(same, log_det)
    jacobian = torch.autograd.functional.jacobian(lambda x: warp.to_u(x[None])[0][0], z[3])
    torch.testing.assert_close(torch.linalg.slogdet(jacobian).logabsdet, log_det[3])


def test_a_warped_mixture_is_a_density(generator):
    """Its weights against a normal density have mean 1."""
    base = StudentMixture(
        torch.zeros(1, dtype=D),
        torch.zeros(1, 3, dtype=D),
        torch.eye(3, dtype=D)[None],
        torch.full((1,), 8.0, dtype=D),
    )
    q = Warped(base, fitted(funnel(500, generator), equal(500)))
    u = q.sample((20_000,), generator)
    r = (torch.distributions.Normal(0.0, 1.0).log_prob(u).sum(-1) - q.log_prob(u)).exp()
    assert abs(float(r.mean()) - 1) < 4.5 * float(r.std()) / 20_000**0.5
    assert float(r.std()) < 10
    plain = Warped(base)
    torch.testing.assert_close(plain.log_prob(u), base.log_prob(u))
    assert plain.to_z(u) is u
    assert q.to_z(u).shape == u.shape
