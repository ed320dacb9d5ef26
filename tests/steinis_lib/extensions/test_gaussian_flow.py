"""The Gaussian flow against kernels, exact Gaussians, quadrature and optimality conditions."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from annealing_checks import same

from steinis_lib import Gaussian, ImportanceSample, LogProb, load_state, save_state
from steinis_lib.companion.sections.s7_extensions.affine import Linear
from steinis_lib.extensions import GaussianFlow, GaussianFlowState, Whitened
from steinis_lib.extensions.gaussian_flow import FARTHEST, NARROWEST, WIDEST, standardise

TILT = torch.tensor([[1.3, 0.0, 0.0], [0.8, 0.5, 0.0], [-0.4, 0.3, 2.0]])


class Watched:
    """A target that keeps the points where its score was taken, and has no log_prob."""

    def __init__(self, target):
        self.target, self.dim, self.asked = target, target.dim, []

    def score(self, x):
        self.asked.append(x)
        return self.target.score(x)


@pytest.fixture
def crooked():
    """exp(-x₁⁴/4 - x₁²/2 + 1.2 x₁ - (x₂ - 0.4 x₁²)²/(2·0.6²)), and log Z from quadrature."""
    grid = torch.linspace(-8, 8, 20001)

    def first(x):
        return -(x**4) / 4 - x**2 / 2 + 1.2 * x

    def function(x):
        return first(x[:, 0]) - (x[:, 1] - 0.4 * x[:, 0] ** 2) ** 2 / 0.72

    log_z = torch.trapezoid(first(grid).exp(), grid).log() + 0.5 * math.log(0.72 * math.pi)
    return LogProb(function, 2), log_z


def optimality(target, q):
    """LᵀE_q[s] and Lᵀ E_q[Hessian] L + I, zero at the maximum of the ELBO, by Gauss-Hermite."""
    nodes, weights = (torch.tensor(a) for a in np.polynomial.hermite_e.hermegauss(16))
    weights = weights / weights.sum()
    u, w = torch.cartesian_prod(nodes, nodes), torch.outer(weights, weights).flatten()
    hessian = torch.func.vmap(torch.func.hessian(lambda x: target.function(x[None])[0]))
    gradients, curvatures = [], []
    for m, tril in zip(q.mean, q.scale_tril, strict=True):
        x = m + u @ tril.mT
        gradients.append(tril.mT @ (w @ target.score(x)))
        curvatures.append(tril.mT @ torch.einsum("i,iab->ab", w, hessian(x)) @ tril + torch.eye(2))
    return torch.stack(gradients), torch.stack(curvatures)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(7, 3), (4, 51, 50), (2, 3, 5, 1)])
def test_standardised_points_have_the_moments_exactly(shape, dtype, generator):
    z = torch.randn(shape, generator=generator, dtype=dtype)
    u = standardise(3 * (z + 0.3 * z.square()) + 5)
    n, d = shape[-2:]
    eps = torch.finfo(dtype).eps
    eye = torch.eye(d, dtype=dtype).expand(*shape[:-2], d, d)
    torch.testing.assert_close(u.mT @ u / n, eye, atol=50 * eps, rtol=0)
    # with n = d + 1 the last direction is all that centring left of the smallest spread
    torch.testing.assert_close(u.mean(-2), torch.zeros_like(u[..., 0, :]), atol=1e4 * eps, rtol=0)
    assert u.dtype == dtype


def test_standardising_changes_as_little_as_possible(generator):
    """The symmetric root: no rotation. Points that are standard already stay where they are."""
    x = torch.randn(9, 3, generator=generator) @ TILT.mT + 2
    u = standardise(x)
    torch.testing.assert_close(standardise(u), u)
    centred = x - x.mean(0)
    root = torch.linalg.lstsq(u, centred).solution
    torch.testing.assert_close(u @ root, centred)
    torch.testing.assert_close(root, root.mT)
    assert (torch.linalg.eigvalsh(root) > 0).all()


def test_a_gaussian_is_reached_to_rounding_in_as_many_steps_as_the_trust_region_asks(generator):
    """Anisotropic, rotated, of two sizes; near by, and 30 standard deviations away."""
    mean = torch.tensor([[1.0, -2.0, 0.5], [12.0, -8.0, -6.0]])
    target = Gaussian(mean, torch.stack([TILT, 0.5 * TILT.flip(0, 1).mT]))
    q0 = Gaussian.isotropic(torch.zeros(3), 2.0)
    flow = GaussianFlow(target, q0, n_leaders=4, full_steps=100)
    start = flow.init(generator, batch_shape=(2,))
    held = []
    state = flow.run(start, 100, on_step=lambda _, info: held.append(info.held_back))
    held = torch.stack(held)
    covariance = target.scale_tril @ target.scale_tril.mT
    close = {"atol": 1e-9, "rtol": 1e-9}
    torch.testing.assert_close(state.mean, mean, **close)
    torch.testing.assert_close(state.scale_tril @ state.scale_tril.mT, covariance, **close)
    for i in range(2):
        n = int(held[:, i].sum())
        assert n > 0 and not held[n:, i].any()  # first held back, then free
        exact = flow.run(start, n + 1)  # one free step does the rest
        torch.testing.assert_close(exact.mean[i], mean[i], **close)
        found = exact.scale_tril[i] @ exact.scale_tril[i].mT
        torch.testing.assert_close(found, covariance[i], **close)
    x = flow.proposal(state).sample((2, 50), generator)
    log_w = target.log_prob(x) - flow.proposal(state).log_prob(x)
    torch.testing.assert_close(log_w, torch.zeros(2, 50), atol=1e-8, rtol=0)


def test_a_transition_stays_within_the_trust_region(generator):
    """A needle far away, and a target that is flat or curves upwards."""
    needle = Gaussian.isotropic(torch.tensor([1e3, -500.0]), 1e-3)
    flow = GaussianFlow(needle, Gaussian(torch.zeros(2), TILT[:2, :2]), n_leaders=10)
    before = flow.init(generator)
    after, info = flow.step(before)
    ratio = torch.linalg.solve(before.scale_tril, after.scale_tril)
    torch.testing.assert_close(torch.linalg.svdvals(ratio), torch.full((2,), NARROWEST))
    shift = torch.linalg.solve(before.scale_tril, after.mean)
    assert float(shift.norm()) == pytest.approx(FARTHEST * math.sqrt(2))
    assert info.held_back and info.step_size == 1
    upwards = LogProb(lambda x: x.square().sum(-1) * torch.tensor(0.1), 2)
    after, info = replace(flow, target=upwards).step(before)
    ratio = torch.linalg.solve(before.scale_tril, after.scale_tril)
    torch.testing.assert_close(torch.linalg.svdvals(ratio), torch.full((2,), WIDEST))
    assert info.held_back


def test_small_steps_are_those_of_the_whitened_linear_kernel(skewed, generator):
    """To first order in a: m moves by a φ(m), and C by (a/2)(JC + CJᵀ) with J = ∇φ."""
    watched = Watched(skewed)
    q = Gaussian(torch.tensor([0.7, 0.4]), torch.tensor([[0.6, 0.0], [0.3, 0.8]]))
    flow = GaussianFlow(watched, q, n_leaders=9, full_steps=0)
    covariance = q.scale_tril @ q.scale_tril.mT
    first = flow.init(generator)
    errors = []
    for t in (10**4, 10**5):
        after, info = flow.step(replace(first, transition=torch.tensor(t)))
        leaders = watched.asked[-1]
        u = torch.linalg.solve(q.scale_tril, (leaders - q.mean).mT).mT
        torch.testing.assert_close(u.mT @ u / 9, torch.eye(2))
        kernel = Whitened(Linear().fit(u), mean=q.mean[None], scale_tril=q.scale_tril)
        phi, jacobian = kernel.field(q.mean[None], leaders, skewed.score(leaders), "full")
        a = info.step_size
        assert a == pytest.approx(2 / (t + 3)) and not info.held_back
        change = jacobian[0] @ covariance
        change = (change + change.mT) / 2
        found = (after.scale_tril @ after.scale_tril.mT - covariance) / a
        errors.append(
            torch.stack([(found - change).norm(), ((after.mean - q.mean) / a - phi).norm()])
        )
        assert min(change.norm(), phi.norm()) > 0.1
    assert (errors[0] < 1e-2).all()
    torch.testing.assert_close(errors[0] / errors[1], torch.full((2,), 10.0), rtol=0.05, atol=0)


def test_the_step_sizes_are_those_documented(skewed, wide, generator):
    sizes = []
    flow = GaussianFlow(skewed, wide, n_leaders=9, full_steps=3)
    start = flow.init(generator)
    state = flow.run(start, 6, on_step=lambda _, info: sizes.append(info.step_size))
    assert sizes == [1, 1, 1, 1 / 1.5, 1 / 2, 1 / 2.5]
    assert int(state.transition) == 6


@pytest.mark.slow
def test_a_run_ends_at_the_maximum_of_the_elbo_up_to_one_over_the_leaders(skewed, wide, generator):
    """E_q[s] = 0 and E_q[Hessian] = -C⁻¹; the mean of 60 runs shows the bias in the noise.

    Runs are long, for what is left of the way when steps begin to fall shrinks slowly.
    """
    at_start = optimality(skewed, Gaussian(wide.mean[None], wide.scale_tril[None]))
    assert at_start[1].norm() > 10
    bias = {}
    for n in (25, 100, 400):
        flow = GaussianFlow(skewed, wide, n_leaders=n, full_steps=150)
        q = flow.proposal(flow.run(flow.init(generator, batch_shape=(60,)), 600))
        gradient, curvature = (part.flatten(1) for part in optimality(skewed, q))
        both = torch.cat([gradient, curvature], 1)
        bias[n] = both.mean(0)
        error = both.std(0) / math.sqrt(60)
        assert (bias[n].abs() < 2.5 / n + 4 * error).all()
    assert 0.04 < bias[25].norm() < 0.1
    assert bias[400].norm() < 0.01
    assert 2 < bias[25].norm() / bias[100].norm() < 7


def test_z_is_unbiased_with_the_proposal_at_any_transition(crooked, generator):
    target, log_z = crooked
    q0 = Gaussian.isotropic(torch.tensor([0.3, 0.5]), 1.2)
    flow = GaussianFlow(target, q0, n_leaders=10)
    state = flow.init(generator, batch_shape=(400,))
    spread = []
    for _ in range(3):
        q = flow.proposal(state)
        x = q.sample((400, 100), generator)
        ratio = (ImportanceSample(x, target.log_prob(x) - q.log_prob(x)).log_z - log_z).exp()
        assert abs(ratio.mean() - 1) < 4 * ratio.std() / 20
        spread.append(ratio.std())
        state = flow.run(state, 6)
    assert spread[2] < 0.7 * spread[0]
    assert spread[2] < 0.2


def test_expectations_agree_with_quadrature(crooked, generator):
    target, log_z = crooked
    axis = torch.linspace(-6, 8, 701)
    grid = torch.cartesian_prod(axis, axis)
    p = (target.log_prob(grid) - log_z).exp() * 0.02**2
    flow = GaussianFlow(target, Gaussian.isotropic(torch.zeros(2)), n_leaders=50)
    q = flow.proposal(flow.run(flow.init(generator), 20))
    x = q.sample((20_000,), generator)
    sample = ImportanceSample(x, target.log_prob(x) - q.log_prob(x))
    mean, error = sample.expectation(lambda x: torch.cat([x, x.square(), x.prod(-1, True)], -1))
    exact = p @ torch.cat([grid, grid.square(), grid.prod(-1, keepdim=True)], -1)
    assert ((mean - exact).abs() < 4 * error).all()
    assert sample.ess > 10_000


def test_a_run_asks_for_the_scores_of_its_leaders_and_nothing_else(skewed, wide, generator):
    """No followers, no log_prob; draws from q_ℓ on the way do not change what follows."""
    watched = Watched(skewed)
    flow = GaussianFlow(watched, wide, n_leaders=9)
    start = flow.init(generator, batch_shape=(2,))
    end = flow.run(start, 8)
    assert flow.n_evaluations(8) == 72
    assert [tuple(x.shape) for x in watched.asked] == [(2, 9, 2)] * 8
    torch.testing.assert_close(watched.asked[0].mean(-2), wide.mean.expand(2, 2))
    assert {f.name for f in fields(end)} == {"mean", "scale_tril", "transition", "rng"}

    def draw(state, _):
        flow.proposal(state).sample((2, 30), generator)

    assert same(flow.run(start, 8, on_step=draw), end)
    assert not torch.equal(end.mean[0], end.mean[1])


def test_a_saved_run_continues_bit_for_bit(skewed, wide, generator, tmp_path):
    flow = GaussianFlow(skewed, wide, n_leaders=9)
    state = flow.run(flow.init(generator, batch_shape=(2,)), 4)
    save_state(state, tmp_path / "run.safetensors")
    restored = load_state(GaussianFlowState, tmp_path / "run.safetensors")
    assert same(flow.run(state, 6), flow.run(restored, 6))
    assert not same(flow.run(state, 6), flow.run(state, 5))


def test_problems_of_a_batch_do_not_touch_each_other(skewed, wide, generator):
    flow = GaussianFlow(skewed, wide, n_leaders=9)
    first = flow.init(generator, batch_shape=(2, 2))
    moved = first.mean.clone()
    moved[0, 1] += 0.4
    a, b = flow.run(first, 5), flow.run(replace(first, mean=moved), 5)
    changed = (a.mean != b.mean).any(-1) & (a.scale_tril != b.scale_tril).flatten(-2).any(-1)
    assert changed.tolist() == [[False, True], [False, False]]


def test_batch_axes_of_q0_and_of_the_run_broadcast(skewed, generator):
    q0 = Gaussian(torch.zeros(3, 1, 2), torch.eye(2).expand(4, 2, 2))
    flow = GaussianFlow(skewed, q0, n_leaders=9)
    state, info = flow.step(flow.init(generator, batch_shape=(2, 1, 1, 1)))
    assert state.mean.shape == (2, 1, 3, 4, 2) and state.scale_tril.shape == (2, 1, 3, 4, 2, 2)
    assert info.held_back.shape == (2, 1, 3, 4)


def test_float32_in_float32_out(skewed, generator):
    q0 = Gaussian.isotropic(torch.tensor([0.3, 0.5], dtype=torch.float32), 1.5)
    flow = GaussianFlow(skewed, q0, n_leaders=3)
    state = flow.run(flow.init(generator), 30)
    assert state.mean.dtype == state.scale_tril.dtype == torch.float32
    tril = state.scale_tril
    assert torch.equal(tril, tril.tril()) and (tril.diagonal() > 0).all()


def test_nonsense_is_refused(skewed, lopsided, wide, generator):
    with pytest.raises(ValueError, match="n_leaders must be more than d = 2.*got 2"):
        GaussianFlow(skewed, wide, n_leaders=2)
    with pytest.raises(ValueError, match="full_steps must not be negative, got -1"):
        GaussianFlow(skewed, wide, n_leaders=9, full_steps=-1)
    with pytest.raises(ValueError, match="q0 has d=2, but the target has d=1"):
        GaussianFlow(lopsided, wide, n_leaders=9)
    with pytest.raises(ValueError, match="3 points in 3 dimensions .* take more than 3"):
        standardise(torch.randn(2, 3, 3, generator=generator))


def test_a_score_that_is_not_finite_is_refused_naming_the_leader(wide, generator):
    class Broken:
        dim = 2

        def score(self, x):
            s = -x
            s[1, 5, 0] = torch.nan
            return s

    flow = GaussianFlow(Broken(), wide, n_leaders=9)
    with pytest.raises(
        FloatingPointError, match=r"score is \[nan, .*\] at particle \(1, 5\) \(1 of 18"
    ):
        flow.step(flow.init(generator, batch_shape=(2,)))
