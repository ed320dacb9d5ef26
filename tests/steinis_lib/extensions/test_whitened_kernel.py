"""Fields, Jacobians and Stein kernels against autograd; what the affine part does in SteinIS."""

import math

import pytest
import torch

from steinis_lib import IMQ, RBF, Gaussian, SteinIS
from steinis_lib.companion.sections.s7_extensions.affine import Linear, Sum
from steinis_lib.extensions import Whitened
from steinis_lib.stein.maps import StepMap, build

TILT = torch.tensor([[1.3, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.4, 0.3, 2.0]])


def points(generator, *shape):
    """Skewed and tilted, away from the origin."""
    z = torch.randn(*shape, 3, generator=generator)
    return (z + 0.3 * z.square()) @ TILT.mT + torch.tensor([1.0, -2.0, 0.5])


KERNELS = {
    "linear": Linear(symmetric=False),
    "whitened linear": Whitened(Linear(symmetric=False)),
    "sum": Sum((Linear(symmetric=False), RBF(), IMQ(0.7)), (0.5, 2.0, 1.5)),
    "whitened": Whitened(RBF(multiplier=2.0)),
    "whitened sum": Whitened(Sum((Linear(symmetric=False), RBF()), (1.0, 0.5)), shrinkage=0.2),
}


def matrix_kernel(kernel, x, y):
    """K(x, y), ``(d, d)``, as a plain function of two points."""
    eye = torch.eye(len(x))
    if isinstance(kernel, Whitened):
        u, v = (torch.linalg.solve(kernel.scale_tril, p - kernel.mean[0]) for p in (x, y))
        return kernel.scale_tril @ matrix_kernel(kernel.kernel, u, v) @ kernel.scale_tril.mT
    if isinstance(kernel, Sum):
        parts = zip(kernel.weights, kernel.kernels, strict=True)
        return sum(w * matrix_kernel(k, x, y) for w, k in parts)
    if isinstance(kernel, Linear):
        return (1 + (x - kernel.centre[0]) @ (y - kernel.centre[0])) * eye
    r, h = (x - y).square().sum(), kernel.bandwidth
    return (torch.exp(-r / h) if isinstance(kernel, RBF) else (1 + r / h) ** -0.5) * eye


def phi_plain(kernel, y, leaders, scores):
    """(1/m) Σ_j [K(y, x_j) s_j + ∇_{x_j} · K(y, x_j)], the divergence over the rows of K."""
    total = torch.zeros_like(y)
    for x, s in zip(leaders, scores, strict=True):
        derivative = torch.func.jacrev(lambda u: matrix_kernel(kernel, y, u))(x)
        total = total + matrix_kernel(kernel, y, x) @ s + torch.einsum("abb->a", derivative)
    return total / len(leaders)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_field_and_jacobian_against_autograd(name, generator):
    y, leaders = points(generator, 4), points(generator, 9)
    scores = torch.randn(9, 3, generator=generator) + 0.4
    kernel = KERNELS[name].fit(leaders)
    phi, jacobian = kernel.field(y, leaders, scores, "full")
    jacobian = jacobian.expand(4, 3, 3)
    for i in range(4):
        torch.testing.assert_close(phi[i], phi_plain(kernel, y[i], leaders, scores))
        expected = torch.func.jacrev(lambda u: phi_plain(kernel, u, leaders, scores))(y[i])
        torch.testing.assert_close(jacobian[i], expected)
    again, none = kernel.field(y, leaders, scores)
    torch.testing.assert_close(again, phi)
    assert none is None
    _, diagonal = kernel.field(y, leaders, scores, "diagonal")
    traces = jacobian.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(diagonal.sum(-1).expand(4), traces)
    if not isinstance(kernel, Whitened):
        whole = jacobian.diagonal(dim1=-2, dim2=-1)
        torch.testing.assert_close(diagonal.expand(4, 3), whole)


@pytest.mark.parametrize("name", KERNELS)
def test_stein_kernel_against_autograd(name, generator):
    """κ(x, y) = sᵀK s' + sᵀ(∇_y·K) + s'ᵀ(∇_x·K) + ∇_x·∇_y·K."""
    x, y = points(generator, 2), points(generator, 3)
    sx, sy = torch.randn(2, 3, generator=generator), torch.randn(3, 3, generator=generator)
    kernel = KERNELS[name].fit(points(generator, 9))
    found = kernel.stein(x, sx, y, sy)

    def divergence_y(u, v):
        return torch.einsum("abb->a", torch.func.jacrev(lambda w: matrix_kernel(kernel, u, w))(v))

    def divergence_x(u, v):
        return torch.einsum("abb->a", torch.func.jacrev(lambda w: matrix_kernel(kernel, w, v))(u))

    for i in range(2):
        for j in range(3):
            both = torch.func.jacrev(lambda u: divergence_y(u, y[j]))(x[i])  # noqa: B023
            expected = (
                sx[i] @ matrix_kernel(kernel, x[i], y[j]) @ sy[j]
                + sx[i] @ divergence_y(x[i], y[j])
                + sy[j] @ divergence_x(x[i], y[j])
                + both.trace()
            )
            torch.testing.assert_close(found[i, j], expected)


@pytest.mark.parametrize("name", KERNELS)
def test_batches_are_independent_problems(name, generator):
    y, leaders = points(generator, 2, 4), points(generator, 2, 9)
    scores = torch.randn(2, 9, 3, generator=generator)
    together = KERNELS[name].fit(leaders).field(y, leaders, scores, "full")
    for i in range(2):
        alone = KERNELS[name].fit(leaders[i]).field(y[i], leaders[i], scores[i], "full")
        for a, b in zip(together, alone, strict=True):
            torch.testing.assert_close(a[i], b)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("at_once", [2, 100])
def test_jacobians_a_few_problems_at_a_time(name, at_once, generator):
    y, leaders = points(generator, 5, 4), points(generator, 5, 9)
    scores = torch.randn(5, 9, 3, generator=generator)
    kernel = KERNELS[name].fit(leaders)
    phi, pieces = kernel.jacobians(y, leaders, scores, at_once)
    pieces = list(pieces)
    expected = kernel.field(y, leaders, scores, "full")
    torch.testing.assert_close(phi, expected[0])
    torch.testing.assert_close(torch.cat(pieces), expected[1])
    assert [len(piece) for piece in pieces] == ([2, 2, 1] if at_once == 2 else [5])


@pytest.mark.parametrize("name", KERNELS)
def test_log_det_is_that_of_the_map(name, generator):
    y, leaders = points(generator, 5), points(generator, 9)
    scores = torch.randn(9, 3, generator=generator)
    t = StepMap(leaders, scores, KERNELS[name].fit(leaders), 0.2)
    moved, log_abs_det, positive = t.with_log_det(y)
    assert log_abs_det.shape == positive.shape == (5,)
    torch.testing.assert_close(moved, t(y))
    jacobian = torch.func.vmap(torch.func.jacrev(lambda u: t(u.unsqueeze(0))[0]))(y)
    torch.testing.assert_close(log_abs_det, torch.linalg.slogdet(jacobian)[1])


def test_whitened_maps_do_not_depend_on_coordinates(generator, skewed):
    """In coordinates z = A x + b the map is the same map, up to shrinkage, which is off here."""
    a, b = torch.tensor([[2.0, -0.5], [0.7, 0.4]]), torch.tensor([3.0, -1.0])
    x, y = torch.randn(12, 2, generator=generator), torch.randn(5, 2, generator=generator)
    scores = skewed.score(x)
    kernel = Whitened(RBF())
    t = StepMap(x, scores, kernel.fit(x), 0.3)
    moved_x, moved_y = x @ a.mT + b, y @ a.mT + b
    moved_scores = torch.linalg.solve(a.mT, scores.mT).mT
    other = StepMap(moved_x, moved_scores, kernel.fit(moved_x), 0.3)
    torch.testing.assert_close(other(moved_y), t(y) @ a.mT + b)
    torch.testing.assert_close(other.with_log_det(moved_y)[1], t.with_log_det(y)[1])


def test_symmetric_gain_is_the_symmetric_part(generator):
    leaders, y = points(generator, 9), points(generator, 4)
    scores = torch.randn(9, 3, generator=generator)
    plain, symmetric = (
        Linear(flag).fit(leaders).field(y, leaders, scores, "full") for flag in (False, True)
    )
    torch.testing.assert_close(symmetric[1], (plain[1] + plain[1].mT) / 2)
    centred = y - leaders.mean(0)
    difference = centred @ ((plain[1] - plain[1].mT)[0] / 2).mT
    torch.testing.assert_close(plain[0] - symmetric[0], difference)


def test_the_affine_part_alone_finds_a_gaussian(generator):
    """A tilted Gaussian from N(0, I), up to the leaders' own sampling error, which falls as 1/m."""
    target = Gaussian(torch.tensor([1.0, -2.0, 0.5]), TILT)
    q0 = Gaussian.isotropic(torch.zeros(3))
    divergences = []
    for m in (60, 2400):
        sampler = SteinIS(target, q0, n_leaders=m, n_followers=200, kernel=Whitened(Linear()))
        state = sampler.run(sampler.init(generator, batch_shape=(4,)), 60)
        log_w = sampler.importance_sample(state).log_w
        divergences.append(float((log_w.exp() - 1 - log_w).mean()))  # KL, for Z = 1
    assert divergences[1] < 0.005
    assert 10 < divergences[0] / divergences[1] < 160


def test_followers_of_affine_maps_are_gaussian_with_the_tracked_density(generator, skewed):
    """log q_K is a quadratic in the follower: fitted on some, it predicts the others."""
    q0 = Gaussian.isotropic(torch.zeros(2))
    sampler = SteinIS(skewed, q0, n_leaders=30, n_followers=40, kernel=Whitened(Linear()))
    state = sampler.run(sampler.init(generator), 15)
    x = state.followers
    basis = torch.stack(
        [torch.ones(40), x[:, 0], x[:, 1], x[:, 0] ** 2, x[:, 0] * x[:, 1], x[:, 1] ** 2], -1
    )
    c = torch.linalg.lstsq(basis[:10], state.log_q[:10, None]).solution[:, 0]
    torch.testing.assert_close(basis @ c, state.log_q, atol=1e-8, rtol=1e-8)
    precision = -torch.stack([torch.stack([2 * c[3], c[4]]), torch.stack([c[4], 2 * c[5]])])
    peak = c[0] + 0.5 * c[1:3] @ torch.linalg.solve(precision, c[1:3])
    assert float(peak) == pytest.approx(
        float(0.5 * torch.logdet(precision)) - math.log(2 * math.pi), abs=1e-8
    )  # it is normalised


@pytest.mark.parametrize(
    "kernel",
    [
        Whitened(Linear()),
        pytest.param(
            Whitened(Sum((Linear(), RBF(multiplier=4.0)), (1.0, 1.0))), marks=pytest.mark.slow
        ),
        pytest.param(Whitened(RBF(multiplier=6.0)), marks=pytest.mark.slow),
    ],
    ids=["affine", "affine and RBF", "whitened RBF"],
)
def test_z_is_unbiased(kernel, generator, skewed, wide):
    # The score grows as x³: short steps.
    sampler = SteinIS(skewed, wide, n_leaders=30, n_followers=50, kernel=kernel, step_size=0.004)
    state = sampler.run(sampler.init(generator, batch_shape=(300,)), 60)
    assert int(state.n_folds.sum()) == 0
    ratio = (sampler.importance_sample(state).log_z - skewed.log_z).exp()
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(300)
    assert ratio.std() < 0.5


def test_far_followers_feel_the_affine_part(skewed):
    """Where an RBF of the paper's bandwidth has died away, the linear part still moves."""
    leaders = torch.randn(30, 2, generator=torch.Generator().manual_seed(3))
    far = torch.tensor([[25.0, 30.0]])
    moves = [
        (build(skewed, leaders, kernel, 0.1)(far) - far).norm() for kernel in (RBF(), Linear())
    ]
    assert moves[0] < 1e-20
    assert moves[1] > 0.1


def test_too_few_leaders_are_refused_unless_shrunk(generator):
    leaders = torch.randn(3, 3, generator=generator)
    with pytest.raises(ValueError, match="take more than 3 leaders, or shrinkage"):
        Whitened(RBF()).fit(leaders)
    assert torch.isfinite(Whitened(RBF(), 0.1).fit(leaders).scale_tril).all()
    with pytest.raises(ValueError, match="is singular"):
        Whitened(RBF()).fit(torch.ones(9, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sum((RBF(),), (1.0, 2.0)), "one positive weight"),
        (lambda: Sum((), ()), "one positive weight"),
        (lambda: Sum((RBF(),), (0.0,)), "one positive weight"),
        (lambda: Whitened(RBF(), -0.1), "must not be negative"),
        (lambda: Linear().field(*[torch.zeros(2, 2)] * 3), r"call kernel.fit\(leaders\) first"),
        (lambda: Whitened(RBF()).field(*[torch.zeros(2, 2)] * 3), "call kernel.fit"),
    ],
)
def test_nonsense_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
