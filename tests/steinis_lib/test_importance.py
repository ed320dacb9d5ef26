import arviz
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steinis_lib import Gaussian, ImportanceSample, LogProb, importance_sampling


def test_standard_errors_are_those_seen_over_repeats(skewed, wide, generator):
    sample = importance_sampling(skewed, wide, (400, 2000), generator)
    for estimates, errors in (
        (sample.log_z.unsqueeze(-1), sample.log_z_se.unsqueeze(-1)),
        sample.expectation(lambda x: torch.cat([x, x.square()], -1)),
    ):
        # The sd of 400 repeats is known to 3.5 %; allow 4 such.
        ratio = errors.square().mean(0).sqrt() / estimates.std(0)
        assert ((ratio - 1).abs() < 0.15).all()
    error = sample.log_z.exp().std() / 20
    assert abs(sample.log_z.exp().mean() - skewed.log_z.exp()) < 4 * error


def test_pareto_k_is_arviz_and_flags_a_bad_proposal(generator):
    target = Gaussian.isotropic(torch.tensor([0.5, -1.0]))
    bad, good = (
        importance_sampling(target, Gaussian.isotropic(torch.zeros(2), scale), (1000,), generator)
        for scale in (0.4, 1.5)
    )
    assert bad.pareto_k > 0.7 > good.pareto_k
    _, k = arviz.psislw(bad.log_w.numpy())
    torch.testing.assert_close(bad.pareto_k, torch.tensor(float(k)))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(-50, 50), min_size=2, max_size=20), st.floats(-5000, 5000))
def test_log_space_properties(log_w, shift):
    """Scaling p̄ by e^shift moves log Z by it and nothing else; 1 ≤ ESS ≤ n."""
    log_w = torch.tensor(log_w)
    x = torch.arange(len(log_w), dtype=log_w.dtype).unsqueeze(-1)
    a, b = ImportanceSample(x, log_w), ImportanceSample(x, log_w + shift)
    torch.testing.assert_close(b.log_z - a.log_z, torch.tensor(shift), atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(b.log_z_se, a.log_z_se, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(b.ess, a.ess, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(b.expectation(lambda x: x), a.expectation(lambda x: x))
    assert 1 - 1e-9 <= a.ess <= len(log_w) * (1 + 1e-9)


def test_zero_weights_are_fine_and_equal_weights_are_best():
    x = torch.zeros(4, 1)
    half = ImportanceSample(x, torch.tensor([0.0, 0.0, -torch.inf, -torch.inf]))
    torch.testing.assert_close(half.ess, torch.tensor(2.0))
    torch.testing.assert_close(half.log_z, torch.tensor(0.5).log())
    equal = ImportanceSample(x, torch.full((4,), 3.0))
    torch.testing.assert_close(equal.ess, torch.tensor(4.0))
    assert equal.log_z_se == 0
    assert equal.pareto_k == -torch.inf


@pytest.mark.parametrize(
    ("log_w", "error", "message"),
    [
        ([0.0, float("nan")], FloatingPointError, "nan at particle 1"),
        ([float("inf"), 0.0], FloatingPointError, "inf at particle 0"),
        ([-float("inf")] * 2, FloatingPointError, "all weights of a problem are zero"),
        ([0.0] * 3, ValueError, "log_w must be"),
    ],
)
def test_nonsense_is_refused(log_w, error, message):
    with pytest.raises(error, match=message):
        ImportanceSample(torch.zeros(2, 1), torch.tensor(log_w))


def test_wrong_shapes_and_types_are_refused():
    with pytest.raises(ValueError, match="1-D problems add a last axis"):
        ImportanceSample(torch.zeros(3), torch.zeros(3))
    with pytest.raises(TypeError, match="floating-point"):
        ImportanceSample(torch.zeros(3, 1, dtype=torch.int64), torch.zeros(3))
    with pytest.raises(ValueError, match="f must return"):
        ImportanceSample(torch.zeros(3, 1), torch.zeros(3)).expectation(lambda x: x.sum(-1))


def test_importance_sampling_is_unbiased(skewed, wide, generator):
    sample = importance_sampling(skewed, wide, (400, 500), generator)
    torch.testing.assert_close(
        sample.log_w, skewed.log_prob(sample.particles) - wide.log_prob(sample.particles)
    )
    ratio = (sample.log_z - skewed.log_z).exp()
    error = ratio.std() / 20
    assert error < 0.01
    assert abs(ratio.mean() - 1) < 4 * error


def test_importance_sampling_refuses_nonsense(skewed, wide, generator):
    with pytest.raises(ValueError, match="q0 has d=3"):
        importance_sampling(skewed, Gaussian.isotropic(torch.zeros(3)), (10,), generator)
    hole = LogProb(lambda x: x.sum(-1) * torch.nan, 2)
    with pytest.raises(FloatingPointError, match="nan at particle 0"):
        importance_sampling(hole, wide, (10,), generator)
