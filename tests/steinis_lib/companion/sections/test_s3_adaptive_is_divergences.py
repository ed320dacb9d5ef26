import math

import numpy as np
import pytest
import torch
from scipy.stats import gaussian_kde

from steinis_lib.companion.sections.s3_adaptive_is.divergences import (
    MASS_TOLERANCE,
    PlaneGrid,
    kernel_density,
)

MEANS = torch.tensor([[0.7, -1.1], [-0.3, 0.4], [1.0, 0.6]])
COVARIANCES = torch.tensor(
    [[[1.2, 0.5], [0.5, 0.6]], [[0.8, -0.3], [-0.3, 1.5]], [[0.5, 0.1], [0.1, 0.9]]]
)


def gaussian(i, x):
    """log N(x; mean i, covariance i) by the formula."""
    z = x - MEANS[i]
    square = (z @ COVARIANCES[i].inverse() * z).sum(-1)
    return -0.5 * (square + COVARIANCES[i].logdet()) - math.log(2 * math.pi)


def closed_form(i, j):
    """KL between two of the Gaussians."""
    precision, shift = COVARIANCES[j].inverse(), MEANS[j] - MEANS[i]
    trace = (precision @ COVARIANCES[i]).trace()
    logs = COVARIANCES[j].logdet() - COVARIANCES[i].logdet()
    return 0.5 * (trace + shift @ precision @ shift - 2 + logs)


@pytest.fixture
def plane():
    return PlaneGrid.over((-9.0, -10.0), (10.0, 11.0), 0.2)


def test_a_grid_of_a_box():
    torch.set_default_dtype(torch.float32)  # it is in float64 all the same
    try:
        plane = PlaneGrid.over((-1.0, 0.0), (1.0, 1.3), 0.5)
    finally:
        torch.set_default_dtype(torch.float64)
    first, second = [-1.0, -0.5, 0.0, 0.5, 1.0], [0.0, 0.5, 1.0]
    assert [axis.tolist() for axis in plane.axes] == [first, second]
    assert plane.points.tolist() == [[a, b] for a in first for b in second]
    assert plane.log_volume == pytest.approx(math.log(0.25))
    assert plane.points.dtype == torch.float64


@pytest.mark.parametrize(
    ("low", "high", "spacing"),
    [
        ((0.0, 0.0), (1.0, 1.0), 0.0),
        ((0.0, 0.0), (1.0, 1.0), -0.1),
        ((0.0, 0.0), (1.0, 1.0), math.nan),
        ((0.0, 0.0), (0.0, 1.0), 0.1),
        ((0.0, 2.0), (1.0, 1.0), 0.1),
    ],
)
def test_boxes_without_an_inside_are_refused(low, high, spacing):
    with pytest.raises(ValueError, match="need low < high and spacing > 0"):
        PlaneGrid.over(low, high, spacing)


@pytest.mark.parametrize(("i", "j"), [(0, 1), (1, 0), (2, 0), (1, 1)])
def test_kl_of_gaussians_is_the_closed_form(plane, i, j):
    found = plane.kl(gaussian(i, plane.points), gaussian(j, plane.points))
    torch.testing.assert_close(found, closed_form(i, j), rtol=1e-9, atol=1e-12)
    if i != j:
        assert abs(found - closed_form(j, i)) > 0.05  # the two directions differ


def test_batches_are_sums_of_their_own(plane):
    log_q = torch.stack([gaussian(i, plane.points) for i in (0, 1, 2)]).unsqueeze(0)
    log_p = torch.stack([gaussian(i, plane.points) for i in (1, 2)]).unsqueeze(1)
    expected = torch.stack([torch.stack([closed_form(i, j) for i in (0, 1, 2)]) for j in (1, 2)])
    torch.testing.assert_close(plane.kl(log_q, log_p), expected, rtol=1e-9, atol=1e-12)


def test_density_zero_of_q_adds_nothing(plane):
    """q is uniform on a part of the grid."""
    log_p = gaussian(0, plane.points)
    inside = (plane.points[:, 0] > 0.5) & (plane.points[:, 1] < 2)
    level = -math.log(int(inside.sum())) - plane.log_volume
    log_q = torch.where(inside, level, -math.inf)
    expected = level - log_p[inside].mean()
    torch.testing.assert_close(plane.kl(log_q, log_p), expected)
    gone = torch.where(inside, log_p, -math.inf)  # p is zero only where q is
    torch.testing.assert_close(plane.kl(log_q, gone), expected)
    assert plane.kl(log_q, torch.where(inside, -math.inf, log_p)) == math.inf


def test_mass_off_the_grid_is_refused(plane):
    half = PlaneGrid.over((-9.0, -1.1), (10.0, 11.0), 0.2)
    with pytest.raises(ValueError, match=r"q's sum over the grid is off 1 by 0\.4.*wider grid"):
        half.kl(gaussian(0, half.points), gaussian(1, half.points))
    log_q, log_p = gaussian(1, plane.points), gaussian(0, plane.points)
    plane.kl(log_q + math.log1p(0.5 * MASS_TOLERANCE), log_p)
    for off in (2 * MASS_TOLERANCE, -2 * MASS_TOLERANCE):
        both = torch.stack([log_q, log_q + math.log1p(off)])  # one of a batch is enough
        with pytest.raises(ValueError, match=r"off 1 by 0\.002, more than 0\.001"):
            plane.kl(both, log_p)


@pytest.mark.parametrize("centre", [(0.0, 0.0), (0.1, 0.1)])
def test_a_density_too_narrow_for_the_grid_is_refused(plane, centre):
    """On a point the sum is above 1, between points below."""
    z = (plane.points - torch.tensor(centre)) / 0.03
    log_q = -0.5 * z.square().sum(-1) - math.log(2 * math.pi * 0.03**2)
    with pytest.raises(ValueError, match="or a finer one"):
        plane.kl(log_q, gaussian(0, plane.points))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("which", ["q", "p"])
def test_what_is_no_log_density_is_refused(plane, bad, which):
    log = {"q": gaussian(0, plane.points), "p": gaussian(1, plane.points)}
    log[which][17] = bad
    with pytest.raises(FloatingPointError, match=f"log {which} is {bad} at particle 17"):
        plane.kl(log["q"], log["p"])


@pytest.mark.parametrize("factor", [1.0, 0.4, 2.5])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_kernel_density_is_scipys(dim, factor, generator):
    n = 40
    z = torch.randn(n, dim, generator=generator)
    samples = z @ torch.eye(dim).add(0.6).tril() + 0.3 * z.square()
    rule = "scott" if factor == 1 else factor * n ** (-1 / (dim + 4))
    theirs = gaussian_kde(samples.T.numpy(), bw_method=rule)
    x = 2 * torch.randn(25, dim, generator=generator)
    ours = kernel_density(samples, factor).log_prob(x)
    np.testing.assert_allclose(ours.numpy(), theirs.logpdf(x.T.numpy()), rtol=1e-9)


@pytest.mark.parametrize("factor", [0.7, 2.0])
def test_the_kernel_density_integrates_to_one(plane, factor, generator):
    samples = torch.randn(60, 2, generator=generator) * torch.tensor([1.4, 0.9]) + 0.5
    log_q = kernel_density(samples, factor).log_prob(plane.points)
    assert float((log_q + plane.log_volume).exp().sum()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("samples", "factor", "error", "message"),
    [
        (torch.zeros(3, 5, 2), 1.0, ValueError, r"expected samples \(n, d\).*got \(3, 5, 2\)"),
        (torch.eye(3, 2), 0.0, ValueError, "a positive factor, got .*0.0"),
        (torch.eye(3, 2), -1.0, ValueError, "a positive factor, got .*-1.0"),
        (torch.eye(3, 2), math.nan, ValueError, "a positive factor, got .*nan"),
        (torch.eye(1, 2), 1.0, ValueError, "samples needs at least 2 particles, got 1"),
        (torch.ones(3, 2, dtype=torch.int64), 1.0, TypeError, "samples must be a floating-point"),
    ],
)
def test_what_gives_no_kernel_density_is_refused(samples, factor, error, message):
    with pytest.raises(error, match=message):
        kernel_density(samples, factor)


def test_samples_on_a_line_are_refused():
    x = torch.arange(6.0, dtype=torch.float64).unsqueeze(-1)
    with pytest.raises(ValueError, match="6 samples do not span all 2 dimensions"):
        kernel_density(torch.cat([x, 2 * x], -1))


def test_the_last_point_of_a_grid_is_not_lost_to_rounding():
    first, second = PlaneGrid.over((0.0, 0.0), (0.3, 0.7), 0.1).axes
    torch.testing.assert_close(first, torch.tensor([0.0, 0.1, 0.2, 0.3], dtype=torch.float64))
    assert len(second) == 8
