import math

import pytest
import torch
from scipy.optimize import minimize

from steinis_lib.companion.sections.s3_adaptive_is.mixture_weights import optimal_weights
from steinis_lib.targets.mixtures import FullCovarianceMixture

OBJECTIVES = ["variance", "cross-entropy", "reverse-kl"]
GRID = torch.cartesian_prod(torch.linspace(-8, 8, 121), torch.linspace(-7, 11, 121))
LOG_VOLUME = math.log(16 / 120 * 18 / 120)


def mixture(generator, k):
    tril = 0.5 * torch.randn(k, 2, 2, generator=generator).tril(-1) + 0.8 * torch.eye(2)
    means = torch.randn(k, 2, generator=generator) * torch.tensor([1.2, 0.8])
    return FullCovarianceMixture(
        torch.full((k,), -math.log(k)), means + torch.tensor([0.3, 0.6]), tril
    )


def objective(kind, components, log_p, log_weights):
    """The definition, term by term, for a density p normalised on the grid."""
    p = (log_p - log_p.logsumexp(0) - LOG_VOLUME).exp()
    log_q = (components.log_components(GRID) + log_weights).logsumexp(-1)
    integrand = {
        "variance": p**2 / log_q.exp(),
        "cross-entropy": -p * log_q,
        "reverse-kl": log_q.exp() * (log_q - p.log()),
    }[kind]
    return integrand.sum() * math.exp(LOG_VOLUME)


@pytest.fixture
def light(skewed):
    """log p̄ on the grid, its tails raised where the logarithm would overflow p."""
    return skewed.log_prob(GRID).clamp(min=-500)


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("k", [1, 2, 5])
def test_optima_agree_with_bfgs(light, kind, k, generator):
    """BFGS over the logits of the weights, without constraints."""
    components = mixture(generator, k)
    best = optimal_weights(components.log_components(GRID), light, LOG_VOLUME, kind)

    def f(logits):
        logits = torch.tensor(logits, requires_grad=True)
        value = objective(kind, components, light, logits.log_softmax(-1))
        value.backward()
        return value.item(), logits.grad.numpy()

    other = minimize(f, torch.zeros(k).numpy(), jac=True, method="BFGS", options={"gtol": 1e-9})
    weights = torch.tensor(other.x).softmax(-1)
    torch.testing.assert_close(best.weights, weights, atol=2e-4, rtol=0)
    torch.testing.assert_close(best.value, other.fun, atol=1e-5, rtol=1e-6)
    assert (best.weights > 0).all()
    assert abs(best.weights.sum() - 1) < 1e-12


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_the_certificate_is_the_gap_of_the_definition_and_bounds_all_others(light, kind, generator):
    components = mixture(generator, 8)
    best = optimal_weights(components.log_components(GRID), light, LOG_VOLUME, kind, 1e-4)
    pi = best.weights.clone().requires_grad_(True)
    value = objective(kind, components, light, pi.log())
    (g,) = torch.autograd.grad(value, pi)
    torch.testing.assert_close(best.value, value.item())
    assert best.gap == pytest.approx(float(best.weights @ g - g.min()), rel=1e-4, abs=1e-10)
    assert best.gap <= 1e-4 * (best.value if kind == "variance" else 1)
    exact = optimal_weights(components.log_components(GRID), light, LOG_VOLUME, kind, 1e-9)
    assert exact.value - 1e-8 <= best.value <= exact.value + best.gap
    for spread in (0.01, 0.1, 1.0):
        for _ in range(20):
            noise = spread * torch.randn(8, generator=generator)
            other = (exact.weights.log().clamp(min=-20) + noise).log_softmax(-1)
            assert objective(kind, components, light, other) > exact.value - 1e-8


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_target_among_the_mixtures_is_found(kind, generator):
    components = mixture(generator, 6)
    weights = torch.tensor([0.35, 0.05, 0.0, 0.3, 0.1, 0.2])
    log_n = components.log_components(GRID)
    log_p = (log_n + weights.log()).logsumexp(-1) + 2.5  # Z ≠ 1 is taken out
    volumes = torch.full_like(log_p, LOG_VOLUME)
    best = optimal_weights(log_n, log_p, volumes, kind, 1e-9)
    torch.testing.assert_close(best.weights, weights, atol=1e-4, rtol=0)
    if kind != "cross-entropy":
        assert best.value == pytest.approx({"variance": 1, "reverse-kl": 0}[kind], abs=1e-7)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_twins_and_useless_components_do_no_harm(light, kind, generator):
    some = mixture(generator, 6)
    means = torch.cat([some.means, some.means + 1e-9, torch.tensor([[-4.0, 6.0]])])
    trils = torch.cat([some.scale_trils, some.scale_trils, 0.3 * torch.eye(2)[None]])
    more = FullCovarianceMixture(torch.full((13,), -math.log(13)), means, trils)
    one = optimal_weights(some.log_components(GRID), light, LOG_VOLUME, kind)
    two = optimal_weights(more.log_components(GRID), light, LOG_VOLUME, kind)
    torch.testing.assert_close(one.value, two.value, atol=5e-6, rtol=5e-6)
    torch.testing.assert_close(two.weights[:6] + two.weights[6:12], one.weights, atol=1e-3, rtol=0)
    assert two.weights[-1] < 1e-4


def test_nonsense_is_refused(light, generator):
    log_n = mixture(generator, 3).log_components(GRID)
    with pytest.raises(ValueError, match="objective must be one of"):
        optimal_weights(log_n, light, LOG_VOLUME, "kl")
    with pytest.raises(ValueError, match=r"log_components \(G, K\) and log_p \(G,\), got"):
        optimal_weights(log_n[1:], light, LOG_VOLUME, "variance")
    for bad in (torch.nan, torch.inf):
        with pytest.raises(FloatingPointError, match="must be finite"):
            optimal_weights(log_n + bad, light, LOG_VOLUME, "variance")
        with pytest.raises(FloatingPointError, match="must be finite"):
            optimal_weights(log_n, light + bad, LOG_VOLUME, "variance")
    with pytest.raises(FloatingPointError, match="variance overflows whatever the weights"):
        optimal_weights(500 * log_n.clamp(max=0), 0 * light, LOG_VOLUME, "variance")
    with pytest.raises(ValueError, match=r"component \d has mass 0\.\d+ on the grid, not 1"):
        half = GRID[:, 0] > 0
        optimal_weights(log_n[half], light[half], LOG_VOLUME, "reverse-kl")
    with pytest.raises(ValueError, match="p̄ = 0 at a grid point"):
        holed = torch.where(GRID[:, 0] > 3, -torch.inf, light)
        optimal_weights(log_n, holed, LOG_VOLUME, "reverse-kl")
    assert optimal_weights(log_n, holed, LOG_VOLUME, "variance").gap < 1e-4
    with pytest.raises(RuntimeError, match="after 100 iterations, above the tolerance -1"):
        optimal_weights(log_n, light, LOG_VOLUME, "variance", -1.0)
