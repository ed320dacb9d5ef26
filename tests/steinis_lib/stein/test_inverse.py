import math
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
import torch
from scipy.optimize import brentq

from steinis_lib import (
    IMQ,
    RBF,
    Gaussian,
    NotInvertibleError,
    Proposal,
    PushForward,
    SteinIS,
    StepSize,
)
from steinis_lib.stein.inverse import invert
from steinis_lib.stein.maps import StepMap
from steinis_lib.targets.mixtures import random_mixture

KERNEL = RBF(bandwidth=1.7)


def random_map(generator, d, kernel=KERNEL, step_size=0.25, batch=(), dtype=torch.float64):
    leaders, scores = (torch.randn(*batch, 9, d, generator=generator, dtype=dtype) for _ in "ab")
    return StepMap(leaders, 2 * scores, kernel, step_size)


def record(sampler, n_transitions, generator, batch=()):
    """Run SteinIS; return the first and last states, and q_ℓ."""
    maps = []
    first = sampler.init(generator, batch_shape=batch)
    last = sampler.run(first, n_transitions, on_step=lambda _, info: maps.append(info.step_map))
    return first, last, PushForward(sampler.q0, tuple(maps))


@pytest.fixture
def one_dimensional(lopsided, generator):
    """q_60 of a run in 1-D from a q0 that is off the target's centre."""
    q0, kernel = Gaussian.isotropic(torch.tensor([0.6]), 1.3), RBF(multiplier=3.0)
    sampler = SteinIS(lopsided, q0, n_leaders=30, n_followers=1, kernel=kernel, step_size=0.2)
    return record(sampler, 60, generator)[2]


@pytest.fixture
def folding():
    """A map in 1-D that pulls the points about its leaders past each other: T' < 0 there."""
    leaders = torch.tensor([[-0.1], [0.1]])
    return StepMap(leaders, -900 * leaders, RBF(bandwidth=1.0), 0.1)


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-8), (torch.float32, 1e-3)])
@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", [RBF, IMQ])
def test_map_and_inverse_undo_each_other(d, kind, dtype, close, generator):
    t = random_map(generator, d, kind(bandwidth=2.0 * d), dtype=dtype)
    x = 2 * torch.randn(40, d, generator=generator, dtype=dtype)
    moved, expected, _ = t.with_log_det(x)
    assert (moved - x).abs().max() > 0.1
    found, log_abs_det = invert(t, moved)
    torch.testing.assert_close(found, x, atol=close, rtol=close)
    torch.testing.assert_close(log_abs_det, expected, atol=close, rtol=close)
    torch.testing.assert_close(t(invert(t, x)[0]), x, atol=close, rtol=close)
    assert found.dtype == log_abs_det.dtype == dtype


def test_solution_is_better_than_the_tolerance(generator):
    """The last Newton step: residuals are of the order of the square of a loose tolerance."""
    t = random_map(generator, 2)
    y = torch.randn(200, 2, generator=generator)
    residual = (t(invert(t, y, tolerance=1e-3)[0]) - y).abs().amax(-1)
    assert residual.max() < 1e-5


@pytest.mark.parametrize(("shift", "close"), [(1e5, 1e-9), (1e9, 1e-5)])
def test_inverse_does_not_depend_on_the_origin(shift, close, generator):
    """At 1e9 a double's round-off is above the tolerance."""
    t = random_map(generator, 2)
    far = StepMap(t.leaders + shift, t.scores, t.kernel, t.step_size)
    y = torch.randn(50, 2, generator=generator)
    for found, expected in zip(invert(far, y + shift), invert(t, y), strict=True):
        found = found - shift if found.ndim == 2 else found
        torch.testing.assert_close(found, expected, atol=close, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [RBF(), IMQ()])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_density_at_followers_is_the_tracked_one(kernel, batch, generator):
    target = random_mixture(4, 2, generator, batch_shape=batch, spread=2.0)
    q0 = Gaussian.isotropic(torch.tensor([0.4, -0.3]), 2.0)
    settings = {"kernel": kernel, "step_size": StepSize(0.4, 0.2)}
    sampler = SteinIS(target, q0, n_leaders=30, n_followers=50, **settings)
    first, last, q = record(sampler, 100, generator, batch)
    z, log_abs_det = q.pull_back(last.followers)
    torch.testing.assert_close(z, first.followers, atol=1e-6, rtol=0)
    torch.testing.assert_close(log_abs_det, first.log_q - last.log_q, atol=1e-6, rtol=0)
    torch.testing.assert_close(q.log_prob(last.followers), last.log_q, atol=1e-6, rtol=0)
    assert (last.followers - first.followers).abs().mean() > 0.3


def test_recorded_maps_are_those_of_the_run(skewed, wide, generator):
    first, last, q = record(SteinIS(skewed, wide, n_leaders=12, n_followers=6), 5, generator)
    leaders, followers = first.leaders, first.followers
    for t in q.maps:
        leaders, followers = t(leaders), t(followers)
    assert torch.equal(leaders, last.leaders)
    torch.testing.assert_close(followers, last.followers)


@pytest.mark.slow
def test_density_integrates_to_one_in_two_dimensions(skewed, wide, generator):
    settings = {"kernel": RBF(multiplier=3.0), "step_size": 0.05}
    sampler = SteinIS(skewed, wide, n_leaders=20, n_followers=1, **settings)
    _, _, q = record(sampler, 40, generator)
    x = torch.cartesian_prod(torch.linspace(-9, 9, 151), torch.linspace(-9, 10, 161))
    assert abs(q.log_prob(x).exp().sum() * (18 / 150) * (19 / 160) - 1) < 1e-5


@pytest.mark.slow
def test_distribution_function_is_carried_along(one_dimensional):
    """In 1-D, ∫_{-∞}^{T(z)} q_ℓ = Φ((z - 0.6)/1.3)."""
    x = torch.linspace(-12, 12, 6001).unsqueeze(-1)
    z, _ = one_dimensional.pull_back(x)
    q = one_dimensional.log_prob(x).exp()
    cdf = torch.cumulative_trapezoid(q, dx=0.004)
    expected = torch.special.ndtr((z[1:, 0] - 0.6) / 1.3)
    torch.testing.assert_close(cdf, expected, atol=1e-5, rtol=0)
    assert abs(cdf[-1] - 1) < 1e-7


@pytest.mark.slow
def test_density_agrees_with_bisection_and_differences(one_dimensional):
    """Neither Newton nor an analytic Jacobian: brentq, and a difference quotient of all of T."""

    def push(z):
        x = torch.tensor([[z]])
        for t in one_dimensional.maps:
            x = t(x)
        return float(x)

    for x in (-3.1, -0.7, 0.2, 2.9):
        z = brentq(lambda z, x=x: push(z) - x, -20, 20, xtol=1e-13)
        slope = (push(z + 1e-5) - push(z - 1e-5)) / 2e-5
        log_q0 = -0.5 * ((z - 0.6) / 1.3) ** 2 - math.log(1.3 * math.sqrt(2 * math.pi))
        found = one_dimensional.log_prob(torch.tensor([[x]]))
        torch.testing.assert_close(
            found, torch.tensor([log_q0 - math.log(slope)]), atol=1e-6, rtol=0
        )


@pytest.mark.slow
def test_samples_follow_the_density(one_dimensional, generator):
    n, edges = 20_000, torch.linspace(-4, 5, 19)
    draws = one_dimensional.sample((n,), generator)[:, 0]
    x = torch.linspace(-12, 12, 4801)
    p = one_dimensional.log_prob(x.unsqueeze(-1)).exp() * 0.005
    for power in (1, 2, 3):
        error = (draws**power).std() / n**0.5
        assert ((draws**power).mean() - p @ x**power).abs() < 4 * error
    # Bins end half-way between points of the quadrature.
    edges = edges + 0.0025
    for low, high in pairwise(edges):
        share = p[(x > low) & (x < high)].sum()
        count = ((draws > low) & (draws < high)).sum()
        assert (count - n * share).abs() < 4 * (n * share * (1 - share)).sqrt()


def test_points_do_not_influence_each_other(skewed, wide, generator):
    sampler = SteinIS(skewed, wide, n_leaders=20, n_followers=30, step_size=0.05)
    _, last, q = record(sampler, 20, generator)
    order = torch.randperm(30, generator=generator)
    x = last.followers
    torch.testing.assert_close(q.log_prob(x[order]), q.log_prob(x)[order], atol=1e-10, rtol=0)
    torch.testing.assert_close(q.log_prob(x[3:4]), q.log_prob(x)[3:4], atol=1e-10, rtol=0)


def test_batches_are_maps_of_their_own(generator):
    """Far points are done at once, so that problems have different numbers of points left."""
    t = random_map(generator, 2, step_size=torch.tensor([0.02, 0.1, 0.25]), batch=(3,))
    together = replace(t, leaders=t.leaders * torch.tensor([1.0, 2.0, 5.0])[:, None, None])
    y = torch.randn(3, 12, 2, generator=generator)
    y[0, :9] += 40
    y[1, 5:] += 40
    x, log_abs_det = invert(together, y, tolerance=1e-3)
    for i in range(3):
        t = StepMap(together.leaders[i], together.scores[i], KERNEL, float(together.step_size[i]))
        alone = invert(t, y[i], tolerance=1e-3)  # the very same steps
        torch.testing.assert_close(x[i], alone[0], atol=1e-12, rtol=0)
        torch.testing.assert_close(log_abs_det[i], alone[1], atol=1e-12, rtol=0)
    shared = PushForward(Gaussian.isotropic(torch.zeros(2)), (together,)).log_prob(y[2])
    assert shared.shape == (3, 12)


def test_no_maps_leave_q0(wide):
    q = PushForward(wide, ())
    a, b = (p.sample((4, 7), torch.Generator().manual_seed(2)) for p in (q, wide))
    assert torch.equal(a, b)
    assert torch.equal(q.log_prob(a), wide.log_prob(a))
    assert q.dim == 2
    assert isinstance(q, Proposal)


def test_steps_that_overshoot_are_halved(folding):
    """Where T is nearly flat, undamped Newton flies past, and goes round in circles for ever."""
    t = StepMap(folding.leaders, folding.scores / 1.5, folding.kernel, folding.step_size)
    x = torch.linspace(-2, 2, 401).unsqueeze(-1)
    y = t(x)
    assert 0 < (y[1:] - y[:-1]).min() < 1e-4
    for start in (None, torch.zeros_like(y)):
        found, _ = invert(t, y, start=start)
        torch.testing.assert_close(found, x, atol=1e-9, rtol=0)


@dataclass(frozen=True)
class Counting(RBF):
    """Counts the points at which φ is evaluated."""

    seen: tuple = ()

    def field(self, y, leaders, scores, jacobian="none"):
        self.seen[0].append(y.shape[-2])
        return super().field(y, leaders, scores, jacobian)


def test_a_map_costs_about_two_evaluations_a_point(skewed, wide, generator):
    seen = []
    kernel = Counting(seen=(seen,))
    sampler = SteinIS(skewed, wide, n_leaders=20, n_followers=500, kernel=kernel)
    _, last, q = record(sampler, 50, generator)
    seen.clear()
    q.log_prob(last.followers)
    assert sum(seen) < 50 * (20 + 2.2 * 500)


def test_a_map_that_folds_at_its_leaders_is_refused(folding):
    """Even where the inverse that Newton finds looks sound: T' > 0, and ε|φ'| < 1."""
    outer = brentq(lambda x: float(folding(torch.tensor([[x]]))) - 0.05, 0.5, 3)
    x = torch.tensor([[outer]])
    assert folding.with_log_det(x)[1].exp().item() > 0.4
    with pytest.raises(NotInvertibleError, match="is not one-to-one: .* at 2 of the 2 .*smaller"):
        invert(folding, torch.tensor([[0.05]]), start=x)
    good = StepMap(folding.leaders, folding.scores, folding.kernel, 0.01)
    q = PushForward(Gaussian.isotropic(torch.zeros(1)), (good, folding, good))
    with pytest.raises(NotInvertibleError, match="map 1 of 3: the map is not one-to-one"):
        q.log_prob(torch.tensor([[2.0]]))


def test_a_map_that_folds_between_its_leaders_is_refused_where_it_is_met():
    leaders = torch.tensor([[-2.0], [2.0]])
    t = StepMap(leaders, -leaders, RBF(bandwidth=4.0), 3.0)
    assert t.with_log_det(leaders)[2].all()
    y = torch.tensor([[5.0], [0.0]])
    assert not t.with_log_det(y)[2][1]
    with pytest.raises(NotInvertibleError, match="det ∇T is not positive at 1 of the 2 points"):
        invert(t, y)


def test_points_that_are_left_are_refused(generator):
    t = random_map(generator, 2)
    y = torch.randn(6, 2, generator=generator)
    y[4:] += 100
    with pytest.raises(NotInvertibleError, match=r"no inverse found at 4 of 6 points by 1 .*small"):
        invert(t, y, max_iterations=1)
    broken = StepMap(t.leaders, t.scores * torch.nan, t.kernel, t.step_size)
    with pytest.raises(NotInvertibleError, match="no inverse found at 6 of 6 points"):
        invert(broken, y)


def test_wrong_input_is_refused(wide, generator):
    t = random_map(generator, 2)
    q = PushForward(wide, (t,))
    with pytest.raises(ValueError, match="q0 has d=2, but map 1 has d=3"):
        PushForward(wide, (t, random_map(generator, 3)))
    with pytest.raises(FloatingPointError, match="a point is .*nan.* at particle 1"):
        q.log_prob(torch.tensor([[0.0, 0.0], [0.0, torch.nan]]))
    with pytest.raises(FloatingPointError, match="a point is .*nan"):
        PushForward(wide, ()).pull_back(torch.full((1, 2), torch.nan))
    with pytest.raises(ValueError, match="d=3"):
        q.log_prob(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        invert(t, torch.zeros(1, 2), max_iterations=0)
