"""The matrix-product forms against double loops and autograd of the kernel itself."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist

from steinis_lib import IMQ, RBF
from steinis_lib.stein.kernels import median_bandwidth, median_distance

KERNELS = [RBF(bandwidth=1.7), IMQ(bandwidth=0.9)]


def k_plain(kernel, x, y):
    """The kernel as a plain function of two points, for autograd."""
    r = (x - y).square().sum()
    h = kernel.bandwidth
    return torch.exp(-r / h) if isinstance(kernel, RBF) else (1 + r / h) ** -0.5


def phi_plain(kernel, y, leaders, scores):
    """Eq. 8 as printed, one leader at a time, with ∇_x k by autograd."""
    total = torch.zeros_like(y)
    for x, s in zip(leaders, scores, strict=True):
        gradient = torch.func.grad(lambda x: k_plain(kernel, x, y))(x)
        total = total + k_plain(kernel, x, y) * s + gradient
    return total / len(leaders)


def points(generator, *shape):
    return torch.randn(*shape, generator=generator)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("d", [1, 2, 5])
def test_field_and_jacobian_against_autograd(kernel, d, generator):
    y, leaders, scores = (points(generator, n, d) + 0.7 for n in (4, 6, 6))
    phi, jacobian = kernel.field(y, leaders, scores, "full")
    _, diagonal = kernel.field(y, leaders, scores, "diagonal")
    for i in range(4):
        torch.testing.assert_close(phi[i], phi_plain(kernel, y[i], leaders, scores))
        expected = torch.func.jacrev(lambda u: phi_plain(kernel, u, leaders, scores))(y[i])
        torch.testing.assert_close(jacobian[i], expected)
        torch.testing.assert_close(diagonal[i], expected.diagonal())


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("d", [1, 3])
def test_stein_kernel_against_autograd(kernel, d, generator):
    x, sx, y, sy = (points(generator, n, d) + 0.4 for n in (3, 3, 5, 5))
    kappa = kernel.stein(x, sx, y, sy)
    for i in range(3):
        for j in range(5):
            k = k_plain(kernel, x[i], y[j])
            k_x = torch.func.grad(k_plain, argnums=1)(kernel, x[i], y[j])
            k_y = torch.func.grad(k_plain, argnums=2)(kernel, x[i], y[j])
            k_xy = torch.func.jacrev(torch.func.grad(k_plain, argnums=1), argnums=2)(
                kernel, x[i], y[j]
            )
            expected = k * (sx[i] @ sy[j]) + sx[i] @ k_y + sy[j] @ k_x + k_xy.trace()
            torch.testing.assert_close(kappa[i, j], expected)


@pytest.mark.parametrize("kernel", [RBF(), IMQ(), RBF(multiplier=3.0)])
def test_batch_axes_are_independent_problems(kernel, generator):
    y, leaders, scores = (points(generator, 2, 3, n, 2) for n in (5, 7, 7))
    fitted = kernel.fit(leaders)
    phi, jacobian = fitted.field(y, leaders, scores, "full")
    kappa = fitted.stein(y, y, leaders, scores)
    assert jacobian.shape == (2, 3, 5, 2, 2)
    for b in np.ndindex(2, 3):
        alone = kernel.fit(leaders[b])
        expected = alone.field(y[b], leaders[b], scores[b], "full")
        torch.testing.assert_close(phi[b], expected[0])
        torch.testing.assert_close(jacobian[b], expected[1])
        torch.testing.assert_close(kappa[b], alone.stein(y[b], y[b], leaders[b], scores[b]))


@pytest.mark.parametrize("kernel", [RBF(), IMQ()])
@pytest.mark.parametrize("at_once", [1, 4, 100])
def test_jacobians_a_few_problems_at_a_time(kernel, at_once, generator):
    y, leaders, scores = (points(generator, 2, 3, n, 2) for n in (5, 7, 7))
    fitted = kernel.fit(leaders)
    phi, pieces = fitted.jacobians(y, leaders, scores, at_once)
    pieces = list(pieces)
    expected = fitted.field(y, leaders, scores, "full")
    torch.testing.assert_close(phi, expected[0])
    torch.testing.assert_close(torch.cat(pieces), expected[1].flatten(0, 1))
    assert {len(piece) for piece in pieces[:-1]} <= {at_once}


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(KERNELS), st.integers(0, 10**6), st.integers(1, 6), st.floats(-1e3, 1e3))
def test_field_moves_with_a_rotation_and_a_shift(kernel, seed, d, shift):
    """φ is a vector field: it turns with the particles, and does not feel where the origin is."""
    g = torch.Generator().manual_seed(seed)
    y, leaders, scores = (torch.randn(n, d, generator=g) for n in (3, 4, 4))
    q, _ = torch.linalg.qr(torch.randn(d, d, generator=g))
    phi, jacobian = kernel.field(y, leaders, scores, "full")
    phi2, jacobian2 = kernel.field(y @ q.T + shift, leaders @ q.T + shift, scores @ q.T, "full")
    torch.testing.assert_close(phi2, phi @ q.T, atol=1e-9, rtol=1e-7)
    torch.testing.assert_close(jacobian2, q @ jacobian @ q.T, atol=1e-9, rtol=1e-7)


def test_float32_field_stays_accurate_far_from_the_origin(generator):
    y, leaders, scores = (points(generator, n, 3) for n in (4, 6, 6))
    exact = RBF(bandwidth=2.0).field(y + 1e3, leaders + 1e3, scores)[0]
    single = RBF(bandwidth=2.0).field(*(t.float() for t in (y + 1e3, leaders + 1e3, scores)))[0]
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, atol=1e-3, rtol=0)


@pytest.mark.parametrize("n", [2, 3, 4, 7, 10])
def test_median_is_scipys_over_off_diagonal_pairs(n, generator):
    x = points(generator, 2, n, 3)
    expected = [float(np.median(pdist(problem.numpy()))) for problem in x]
    torch.testing.assert_close(median_distance(x), torch.tensor(expected))
    torch.testing.assert_close(
        median_bandwidth(x), torch.tensor(expected) ** 2 / (2 * math.log(n + 1))
    )


def test_median_with_ties():
    x = torch.tensor([0.0, 1.0, 2.0, 3.0]).unsqueeze(-1)  # distances 1 1 1 2 2 3
    assert median_distance(x) == 1.5
    x = torch.tensor([0.0, 0.0, 0.0, 5.0]).unsqueeze(-1)  # 0 0 0 5 5 5
    assert median_distance(x) == 2.5
    x = torch.tensor([0.0, 0.0, 0.0, 0.0, 5.0]).unsqueeze(-1)  # six zeros, four fives
    assert median_distance(x) == 0


def test_identical_particles_are_safe():
    leaders = torch.full((5, 2), 0.3)
    assert median_bandwidth(leaders) == 1
    phi, jacobian = RBF().fit(leaders).field(leaders, leaders, torch.ones(5, 2), "full")
    assert torch.isfinite(jacobian).all()
    torch.testing.assert_close(phi, torch.ones(5, 2))  # no repulsion, the common score


def test_wrong_settings_are_refused(generator):
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        RBF(bandwidth=0.0)
    with pytest.raises(ValueError, match="multiplier must be positive"):
        RBF(multiplier=-1.0)
    with pytest.raises(ValueError, match="at least 2 particles"):
        RBF().fit(torch.zeros(1, 2))
    with pytest.raises(ValueError, match=r"call kernel\.fit"):
        RBF().gram(torch.zeros(2, 2), torch.zeros(2, 2))
