import math

import pytest
import torch
from torch.distributions import Normal

from steinis_lib import Gaussian, LogProb
from steinis_lib.estimate import find as module
from steinis_lib.estimate.find import find

D = torch.float64


def isotropic(dim, scale=1.0, dtype=D):
    return Gaussian.isotropic(torch.zeros(dim, dtype=dtype), scale)


def mixture(dim, parts):
    """Normalised isotropic normal parts (weight, centre, sd)."""

    def log_prob(x):
        terms = [
            math.log(weight) + Normal(centre, sd).log_prob(x).sum(-1)
            for weight, centre, sd in parts
        ]
        return torch.stack(terms).logsumexp(0)

    return log_prob


def run(log_prob, q0, seed=0, n=4000, report=lambda _stage, _sample: None):
    target = LogProb(log_prob, q0.dim)
    return find(target, q0, n, torch.Generator().manual_seed(seed), report)


def pulls(log_prob, q0, truth, seeds):
    """Errors over standard errors, and all doubts."""
    z, doubts = [], []
    for seed in seeds:
        found = run(log_prob, q0, seed)
        log_w = torch.cat([s.log_w for s in found.samples])
        error = float(log_w.logsumexp(0)) - math.log(len(log_w)) - truth
        se = math.hypot(*(float(s.log_z_se) / 2 for s in found.samples))
        z.append(error / se)
        doubts += found.doubts
    return torch.tensor(z), doubts


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_spike_and_the_broad_part_around_it_are_both_found(share):
    parts = [(share, 0.0, 1.0), (1 - share, 0.0, 0.1)]
    z, doubts = pulls(mixture(10, parts), isotropic(10, 2.0), 0.0, range(3))
    assert (z.abs() < 4).all()
    assert doubts == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dim", "parts", "scale"),
    [
        (5, [(0.5, -2.0, 0.3), (0.5, 2.0, 1.0)], 3.0),  # two widths
        (1, [(0.5, 0.0, 1.0), (0.5, 8.0, 1.0)], 1.0),  # eight deviations beyond q0
    ],
)
def test_modes_that_are_easily_missed_are_found(dim, parts, scale):
    z, doubts = pulls(mixture(dim, parts), isotropic(dim, scale), 0.0, range(5))
    assert (z.abs() < 4).all()
    assert doubts == []


def test_scales_that_q0_knows_cost_nothing():
    scales = torch.tensor([1e-6, 1.0, 1e4], dtype=D)
    q0 = Gaussian(torch.zeros(3, dtype=D), torch.diag(2 * scales))
    calls = []

    def log_prob(x):
        calls.append(len(x))
        return Normal(0.0, scales).log_prob(x).sum(-1)

    z, doubts = pulls(log_prob, q0, 0.0, [0])
    assert abs(z[0]) < 4
    assert doubts == []
    assert sum(calls) < 15_000


@pytest.mark.slow
def test_a_funnel_is_right_by_a_map_or_doubted():
    def funnel(x):
        neck = Normal(0.0, 3.0).log_prob(x[:, 0])
        wide = (x[:, :1] / 2).clamp(-300, 300).exp()
        return neck + Normal(0.0, wide).log_prob(x[:, 1:]).sum(-1)

    found = run(
        funnel,
        Gaussian(torch.zeros(6, dtype=D), torch.diag(torch.tensor([3.0] + 5 * [10.0], dtype=D))),
    )
    log_w = torch.cat([s.log_w for s in found.samples])
    assert found.route == ("map",)
    assert abs(float(log_w.logsumexp(0)) - math.log(len(log_w))) < 0.15
    assert len(found.samples[0].log_w) == len(found.samples[1].log_w) >= 2000


@pytest.mark.slow
def test_standard_errors_are_those_seen():
    """A skewed density, log-gamma, over thirty seeds: the RMS of z within 4 times its own error."""
    z, doubts = pulls(
        lambda x: (2 * x - x.exp()).sum(-1), isotropic(1), math.lgamma(2.0), range(30)
    )
    assert abs(float(z.square().mean()) - 1) < 4 * math.sqrt(2 / 30)
    assert abs(float(z.mean())) < 4 / math.sqrt(30)
    assert doubts == []


def test_single_precision_that_cancels_is_doubted():
    y = 100 + torch.randn(10_000, generator=torch.Generator().manual_seed(1), dtype=torch.float32)

    def log_prob(x):
        return -0.5 * (y.square().sum() - 2 * x[:, 0] * y.sum() + 1e4 * x[:, 0].square())

    found = run(
        log_prob,
        Gaussian(*(torch.tensor(v, dtype=torch.float32) for v in ([100.0], [[1.0]]))),
        n=1000,
    )
    (doubt,) = [doubt for doubt in found.doubts if doubt.cause == "rounding"]
    assert doubt.fatal
    assert 1 < doubt.damage < 10
    assert "float64" in doubt.message
    assert found.samples[0].particles.dtype == torch.float32


def test_an_improper_density_is_doubted():
    for ridge in (lambda x: x[:, 0] + x[:, 1], lambda x: x[:, 0]):
        found = run(lambda x, ridge=ridge: -0.5 * ridge(x).square(), isotropic(2), n=1000)
        assert "improper" in [doubt.cause for doubt in found.doubts]


def test_stages_and_samples_so_far_are_reported_and_a_stop_passes_through():
    told = []
    run(
        lambda x: -0.5 * x.square().sum(-1),
        isotropic(2),
        n=400,
        report=lambda *what: told.append(what),
    )
    assert [stage for stage, _ in told][0] == "climbing"
    assert [stage for stage, _ in told][-2:] == [
        "weighing the first run",
        "weighing the second run",
    ]
    assert all(sample.particles.shape == (200, 2) for _, sample in told[-2:])

    class Stop(Exception):
        pass

    def stop(stage, _sample):
        if stage != "climbing":
            raise Stop

    with pytest.raises(Stop):
        run(lambda x: -0.5 * x.square().sum(-1), isotropic(2), report=stop)


def test_a_density_that_is_zero_in_a_part_of_space_is_weighed_all_the_same():
    """Half a normal density; its score is zero outside."""

    def half(x):
        return torch.where(x[:, 0] > 0, -0.5 * x.square().sum(-1), -torch.inf)

    z, _ = pulls(half, isotropic(2), math.log(2 * math.pi) - math.log(2), [0, 1])
    assert (z.abs() < 4).all()


def test_zero_everywhere_is_refused():
    with pytest.raises(FloatingPointError, match="all weights"):
        run(lambda x: x.sum(-1) - torch.inf, isotropic(2))


def test_a_bad_proposal_is_given_more_draws(monkeypatch):
    """As many times as its pilots' effective share is short, up to a limit."""
    monkeypatch.setattr(module, "GOOD", 4.0)
    found = run(lambda x: -0.5 * x.square().sum(-1), isotropic(2), n=400)
    assert len(found.samples[0].log_w) in (4 * 200, 5 * 200)
