"""Against LU in double precision, closed forms, and matrices made so that one route must fail."""

import math

import pytest
import torch

from steinis_lib.stein import determinants
from steinis_lib.stein.determinants import OuterSum, log_abs_det

DTYPES = [torch.float32, torch.float64]


def near_diagonal(generator, n, d, norm, rank=None):
    """D(I + E) with ‖E‖_F = `norm`, tr E = 0 entry by entry, and D of either sign."""
    shape = (n, d, rank or d)
    e = torch.randn(shape, generator=generator) @ torch.randn(shape, generator=generator).mT
    e.diagonal(dim1=-2, dim2=-1).zero_()
    e *= norm / e.norm(dim=(-2, -1), keepdim=True)
    e.diagonal(dim1=-2, dim2=-1).add_(1)
    scale = 0.5 + torch.rand(n, d, 1, generator=generator)
    return e * scale * torch.randn(n, d, 1, generator=generator).sign()


@pytest.fixture
def no_lu(monkeypatch):
    def refuse(a):
        raise AssertionError(f"{len(a)} matrices went to LU")

    monkeypatch.setattr(determinants, "_lu", refuse)


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3, 10, 15, 16, 20, 50])
@pytest.mark.parametrize("norm", [1e-4, 2e-3, 0.1, 0.3, 3.0])
def test_double_precision_agrees_with_lu(d, norm, generator):
    a = near_diagonal(generator, 40, d, norm) if d > 1 else torch.randn(40, 1, 1)
    sign, log_det = log_abs_det(a)
    expected = torch.linalg.slogdet(a)
    assert 5 < (sign < 0).sum() < 35
    assert torch.equal(sign, expected[0])
    torch.testing.assert_close(log_det, expected[1], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("d", [3, 10, 20, 50])
@pytest.mark.parametrize("norm", [0.01, 0.05, 0.1, 0.15, 0.3, 2.0])
@pytest.mark.parametrize("rank", [1, None])
def test_single_precision_errs_no_more_than_lu(d, norm, rank, generator):
    a = near_diagonal(generator, 400, d, norm, rank).float()
    exact = torch.linalg.slogdet(a.double())
    sign, log_det = log_abs_det(a)
    assert log_det.dtype == torch.float32
    assert torch.equal(sign.double(), exact[0])
    ours, of_lu = (
        (t.double() - exact[1]).square().mean().sqrt()
        for t in (log_det, torch.linalg.slogdet(a)[1])
    )
    assert ours <= of_lu


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("k", [2, 3, 4, 5, 6])
def test_the_error_of_the_series_stays_below_rounding(k, dtype):
    """I + cP, P a cycle of length k: det = 1 - (-c)^k, of which only tr E^k, tr E^2k, … know."""
    d, precision = 20, torch.finfo(dtype).eps
    cycle = torch.zeros(d, d, dtype=dtype)
    cycle[range(k), [*range(1, k), 0]] = 1
    for c in torch.logspace(-5, -0.1, 101).tolist():
        a = torch.eye(d, dtype=dtype) + c * cycle
        sign, log_det = log_abs_det(a)
        assert sign == 1
        exact = math.log1p(-((-float(a[0, 1])) ** k))
        assert abs(float(log_det) - exact) < d**0.5 * precision * max(1, -exact)


@pytest.mark.parametrize(("dtype", "norm"), [(torch.float32, 0.08), (torch.float64, 1.3e-3)])
@pytest.mark.parametrize("d", [20, 50])
def test_nearly_diagonal_matrices_need_no_lu(d, dtype, norm, generator, no_lu):
    a = near_diagonal(generator, 30, d, norm).to(dtype)
    sign, log_det = log_abs_det(a)
    exact = torch.linalg.slogdet(a.double())
    assert torch.equal(sign.double(), exact[0])
    torch.testing.assert_close(
        log_det.double(), exact[1], atol=8e-15 if norm < 0.01 else 2e-6, rtol=0
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_odd_ones_among_nearly_diagonal_matrices(dtype, generator):
    d = 20
    a = near_diagonal(generator, 40, d, 1e-3).to(dtype)
    a[0] = torch.randn(d, d, generator=generator)
    a[1] = torch.eye(d).roll(1, 0)  # a cycle of even length: odd, with zeros on the diagonal
    a[2, :, 3] = 0  # singular
    a[3, 5] = a[3, 4]  # singular, but for rounding
    a[4] *= (10.0 ** torch.linspace(-8, 8, d)).unsqueeze(-1)
    a[5, 0] = 1e-30 * a[6, 0]  # products of its entries underflow in single precision
    a[7, 0, 0] = math.nan
    a[8, 0] *= -1
    sign, log_det = log_abs_det(a)
    exact = torch.linalg.slogdet(a.double())
    assert sign[1] == -1
    assert abs(log_det[1]) < 1e-6
    assert sign[2] == 0
    assert log_det[2] == -math.inf
    assert log_det[3] < -10
    assert math.isnan(log_det[7])
    sound = [0, 4, 5, 6, *range(8, 40)]
    assert torch.equal(sign[sound].double(), exact[0][sound])
    precision = 1e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(
        log_det[sound].double(), exact[1][sound], atol=precision, rtol=precision
    )


def test_a_small_row_does_not_pass_for_a_nearly_diagonal_one(generator):
    """Rows of 1e-30: their squares are zero in single precision, E is not small."""
    a = torch.eye(16) + torch.randn(16, 16, generator=generator)
    sign, log_det = log_abs_det((1e-30 * a).float())
    exact = torch.linalg.slogdet((1e-30 * a).float().double())
    assert sign == exact[0]
    torch.testing.assert_close(log_det.double(), exact[1], atol=1e-4, rtol=0)


@pytest.mark.parametrize("d", [1, 2, 3, 20])
@pytest.mark.parametrize("batch", [(), (0,), (2, 3), (2, 0)])
def test_shapes(d, batch, generator):
    a = torch.eye(d) + 1e-4 * torch.randn(*batch, d, d, generator=generator)
    before = a.clone()
    sign, log_det = log_abs_det(a)
    assert sign.shape == log_det.shape == batch
    torch.testing.assert_close(log_det, torch.linalg.slogdet(a)[1])
    assert torch.equal(a, before)


def test_outer_sum_is_what_it_says(generator):
    weights, c = torch.randn(4, 6, generator=generator), torch.randn(4, 1, generator=generator)
    a, b = torch.randn(2, 6, 3, generator=generator)
    u, v, y = torch.randn(3, 4, 3, generator=generator)
    full = OuterSum(weights, a, b, u, v, y, c).full()
    for i in range(4):
        expected = c[i] * torch.eye(3) + torch.outer(u[i], y[i]) + torch.outer(y[i], v[i])
        for j in range(6):
            expected = expected + weights[i, j] * torch.outer(a[j], b[j])
        torch.testing.assert_close(full[i], expected)
    diagonal = OuterSum(weights, a, b, u, v, y, c).diagonal()
    torch.testing.assert_close(diagonal, full.diagonal(dim1=-2, dim2=-1))
