"""The exercises of the sections: the formulas and numbers of the solutions, computed anew."""

import math

import numpy as np
import pytest
import torch
from examples import method
from exercises import changed, says
from scipy import optimize, stats

from steinis_lib import Gaussian, SteinIS
from steinis_lib.baselines import HAIS, linear_schedule
from steinis_lib.companion.problems.rbm import random_rbm
from steinis_lib.companion.sections.s6_running_time import statistics as timing
from steinis_lib.companion.sections.s6_running_time.experiment import RunningTime
from steinis_lib.stein.kernels import RBF


def test_kl_leaves_the_answer_with_the_square_of_time():
    y = method.GRID
    phi, slope = method.field(y)
    p = torch.exp(-y.square() / 2) / math.sqrt(2 * math.pi)
    square = float(torch.trapezoid(p * (slope - y * phi) ** 2, y))
    assert float(torch.trapezoid(p * (slope - y * phi), y)) == pytest.approx(0, abs=1e-9)
    assert 2 * method.worked_kl(1e-3) / 1e-6 == pytest.approx(square, rel=0.01)
    says(
        1,
        rf"$\mathbb{{E}}_p[g^2] = {square:.2f}$",
        f"= {0.005 * square:.4f}$, and the exact KL is {method.worked_kl(0.1):.4f}",
    )


def test_what_a_power_law_scores():
    u = optimize.brentq(lambda u: (1 + u) * (1 + 9 * u) ** 2 - (1 + 10 * u) ** 2, 0.01, 1)
    assert u == pytest.approx((1 + math.sqrt(325)) / 162)
    says(1, f"u = (1+\\sqrt{{325}})/162 = {u:.3f}", f"= {math.log10(1 + 10 * u):.3f}\\,p$ decades")


def test_the_kernel_at_the_median():
    says(2, f"which is {2 * math.log(101) / math.log(2):.1f} for 100 leaders")
    says(2, f"Multiples of 10 and 57 make it {101 ** (-2 / 10):.2f} and {101 ** (-2 / 57):.2f}")


def test_two_particles_at_rest():
    a = math.sqrt(math.log(5) / 4)
    x = torch.tensor([[a], [-a]], dtype=torch.float64)
    field, _ = RBF(bandwidth=1.0).field(x, x, -x)
    assert field.abs().max() < 1e-12
    kappa = RBF(bandwidth=1.0).stein(x, -x, x, -x)
    own, other = float(kappa[0, 0]), float(kappa[0, 1])
    says(2, f"= {a * a:.3f}$ and $f = \\frac15$")
    says(2, f"$\\kappa_p(a,a) = {own:.3f}$ and $\\kappa_p(a,-a) = {other:.3f}$")
    says(2, f"adds {(own + other) / 2:.3f} per unit of time")
    says(2, f"the U-statistic takes {-other:.3f} away")


def test_two_meanings_of_best_weights():
    p, u = np.array([0.6, 0.39, 0.01]), np.array([[1, 0, 0], [0, 0.5, 0.5]])

    def kl(w):
        q = np.array([w, 1 - w]) @ u
        return float((q * np.log(q / p)).sum())

    def chi2(w):
        return float((p**2 / (np.array([w, 1 - w]) @ u)).sum()) - 1

    by_kl, by_chi2 = (
        optimize.minimize_scalar(
            f, bounds=(0.01, 0.99), method="bounded", options={"xatol": 1e-8}
        ).x
        for f in (kl, chi2)
    )
    says(3, f"= {by_kl:.2f}$.", f"= {by_chi2:.2f}$.")
    at_chi2 = f"At the weight {by_chi2:.2f} KL is {kl(by_chi2):.2f} in place of {kl(by_kl):.2f}"
    says(3, at_chi2, f"is {chi2(by_kl):.2f} in place of {chi2(by_chi2):.2f}")


def test_the_log_z_of_an_rbm_and_its_clusters():
    model = random_rbm(5, 3, torch.Generator().manual_seed(0))
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * 3)
    centres = signs @ model.coupling.mT + model.bias_x
    exponents = signs @ model.bias_h + centres.square().sum(-1) / 2
    exact = 2.5 * math.log(2 * math.pi) + exponents.logsumexp(-1)
    assert float(model.log_z) == pytest.approx(float(exact))
    leads = {}
    for d in (10, 100):
        models = random_rbm(d, 10, torch.Generator().manual_seed(0), batch_shape=(200,))
        top = models.state_log_probs.topk(2).values
        leads[d] = float((top[:, 0] - top[:, 1]).mean())
    says(4, f"by {leads[100]:.1f} nats on average at $d = 100$, and by {leads[10]:.1f} at $d = 10$")


def test_how_far_a_kernel_reaches():
    share = {
        d: stats.chi2.cdf(math.log(100) / (2 * math.log(101)) * stats.chi2.median(d), d)
        for d in (2, 10, 100)
    }
    says(4, f"= {share[2]:.2f}$.", f"gives {100 * share[10]:.1f} %", "about $5\\cdot10^{-6}$")
    assert 4.5e-6 < share[100] < 6e-6
    twice = changed(4, 1, "multiplier=1)", "multiplier=2)")
    assert all(45 < row[1] < 50 for row in twice)
    says(4, f"largest $k$ is only {twice[-1][-1]:.2f}")


def test_a_distant_cluster_leaves_equal_weights():
    y = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w = 0.25 + 0.75 * torch.exp(40 * y - 800)
    assert float(w.max() - w.min()) < 1e-12
    says(4, f"comes to $\\log 0.25 = {math.log(0.25):.2f}$")


def test_the_bias_of_a_logarithm():
    mu = math.sqrt(math.log(7))  # χ² = exp(μ²) - 1 = 6
    x = torch.randn(20000, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_z = (mu * x - mu * mu / 2).logsumexp(-1) - math.log(60)
    says(5, f"of that $\\chi^2$ gives {-float(log_z.mean()):.3f}")


def test_counts():
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float64))
    for n, ours, theirs in ((60, 60_060, 60_060), (6000, 66_000, 6_006_000)):
        steinis = SteinIS(q0, q0, n_leaders=60, n_followers=n)
        hais = HAIS(q0, q0, n_particles=n, schedule=linear_schedule(1000))
        assert (steinis.n_evaluations(1000), hais.n_evaluations()) == (ours, theirs)
        says(6, f"{ours:,}".replace(",", " "), f"{theirs:,}".replace(",", " "))
    ratios = [timing.PAPER["hais-10l"][d] / timing.PAPER["hais-1l"][d] for d in (10, 20, 50)]
    says(6, "{:.2f}, {:.2f} and {:.2f} times as long".format(*ratios))
    fixed = [round(100 * (10 - ratio) / 9) for ratio in ratios]
    says(6, "{} %, {} % and {} % of HAIS-1L".format(*fixed))
    p = RunningTime.of_profile("quick", {"n_followers": 240})
    assert p.n_leaders == 60  # the ratio of counts is 60/240


def test_the_flow_of_a_gaussian_on_a_line():
    for mu, v in ((1.0, 0.25), (-2.0, 0.5), (0.0, 1.0)):
        levels = (torch.arange(20000, dtype=torch.float64) + 0.5) / 20000
        x = mu + math.sqrt(v) * torch.special.ndtri(levels)
        phi = ((1 + x[:, None] * x[None, ::100]) * -x[:, None] + x[None, ::100]).mean(0)
        assert torch.allclose(phi, -mu + (1 - v - mu**2) * x[::100], atol=0.01)
        step = 1e-6 * (-mu + (1 - v - mu**2) * x)
        assert float((x + step).mean() - x.mean()) == pytest.approx(
            -1e-6 * mu * (v + mu**2), abs=1e-10
        )
        rise = float((x + step).var() - x.var())
        assert rise == pytest.approx(2e-6 * v * (1 - v - mu**2), rel=0.01, abs=1e-10)
