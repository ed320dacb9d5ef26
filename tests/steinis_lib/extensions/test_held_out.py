from dataclasses import replace

import pytest
import torch
from annealing_checks import same

from steinis_lib import (
    IMQ,
    RBF,
    Gaussian,
    ImportanceSample,
    LogProb,
    PushForward,
    load_state,
    save_state,
)
from steinis_lib.companion.sections.s7_extensions.affine import Linear
from steinis_lib.extensions import HeldOutSteinIS, HeldOutSteinISState, PulledBack


def held_out(target, q0, n_leaders, n_followers, n_held_out, **settings):
    sizes = {"n_leaders": n_leaders, "n_followers": n_followers, "n_held_out": n_held_out}
    return HeldOutSteinIS(target, q0, **sizes, **settings)


def weigh_held_out(target, state):
    return target.log_prob(state.held_out) - state.log_q_held_out


def test_the_elbo_never_falls_and_is_the_mean_log_weight(skewed, wide, generator):
    sampler = held_out(skewed, wide, 30, 10, 40)
    seen = [sampler.init(generator, batch_shape=(6,))]
    gains = []

    def record(state, info):
        seen.append(state)
        gains.append(info.gain)

    sampler.run(seen[0], 25, on_step=record)
    assert len(gains) > 10
    for before, after, gain in zip(seen, seen[1:], gains, strict=False):
        assert (after.elbo >= before.elbo).all()
        torch.testing.assert_close(gain, after.elbo - before.elbo)
        torch.testing.assert_close(after.elbo, weigh_held_out(skewed, after).mean(-1))
    # Some transitions move a problem, some do not; the step changes, and the bandwidth too.
    assert any((gain > 0).any() for gain in gains)
    assert any((gain == 0).any() for gain in gains)
    assert seen[-1].step_size.unique().numel() > 1
    assert seen[-1].multiplier.unique().numel() > 1


def test_the_divergence_of_fresh_draws_falls(skewed, wide, generator):
    """KL(q_ℓ‖p) of followers, which steered nothing, in units of its standard error."""
    settings = {"kernel": RBF(multiplier=2.0), "leaders_per_step": 50}
    sampler = held_out(skewed, wide, 300, 2000, 300, **settings)
    start = sampler.init(generator)
    end = sampler.run(start, 20)
    before, after = (sampler.importance_sample(s) for s in (start, end))
    gain = after.log_w - before.log_w
    assert gain.mean() > 10 * gain.std() / 2000**0.5
    assert skewed.log_z - after.log_w.mean() < 0.5 * (skewed.log_z - before.log_w.mean())
    assert after.ess > 1.5 * before.ess


def test_z_of_followers_is_unbiased_and_held_out_particles_are_flattered(skewed, wide, generator):
    """Few held-out particles chose the maps that moved them: their mean log-weight is too high."""
    settings = {"kernel": RBF(multiplier=4.0), "first_step_size": 0.05}
    sampler = held_out(skewed, wide, 15, 60, 6, **settings)
    state = sampler.run(sampler.init(generator, batch_shape=(1500,)), 7)
    assert state.n_folds.max() == 0
    sample = sampler.importance_sample(state)
    ratio = (sample.log_z - skewed.log_z).exp()
    error = ratio.std() / len(ratio) ** 0.5
    assert error < 0.01
    assert abs(ratio.mean() - 1) < 4 * error
    flattery = state.elbo - sample.log_w.mean(-1)
    assert flattery.mean() > 4 * flattery.std() / len(flattery) ** 0.5


def test_a_refused_problem_stands_still_while_another_moves(generator):
    """The first problem's target is its q0, which no map can improve on 2000 held-out particles."""
    mean = torch.tensor([[0.0, 0.0], [2.5, -1.0]])
    target = Gaussian(mean, torch.eye(2).expand(2, 2, 2))
    q0 = Gaussian.isotropic(torch.zeros(2))
    sampler = held_out(target, q0, 10, 7, 2000, first_step_size=0.5)
    before = sampler.init(generator, batch_shape=(2,))
    after, info = sampler.step(before)
    assert info.gain[0] == 0 < info.gain[1]
    assert info.step_map.step_size[0] == 0
    for name in ("leaders", "followers", "held_out", "log_q", "log_q_held_out", "elbo"):
        assert torch.equal(getattr(before, name)[0], getattr(after, name)[0])
        assert not torch.equal(getattr(before, name)[1], getattr(after, name)[1])
    assert after.n_refused.tolist() == [1, 0]
    assert after.step_size[0] == 0.25


def test_a_step_that_folds_is_refused(lopsided, generator):
    """So large a step with so narrow a kernel folds somewhere, whatever the ELBO says of it."""
    q0 = Gaussian.isotropic(torch.zeros(1), 2.0)
    settings = {"kernel": RBF(multiplier=0.3), "first_step_size": 12.0}
    sampler = held_out(lopsided, q0, 20, 10, 500, **settings)
    start = sampler.init(generator, batch_shape=(20,))
    state, info = sampler.step(start)
    raw = replace(info.step_map, step_size=torch.full_like(start.elbo, 12.0))
    _, _, positive = raw.with_log_det(start.held_out)
    assert not positive.all(-1).any()
    _, _, positive = info.step_map.with_log_det(start.held_out)
    assert positive.all()
    assert (info.step_map.step_size < 12.0).all()
    # Further on most problems still find steps that do not fold.
    later = sampler.run(state, 12)
    assert (later.elbo > start.elbo).sum() > 10


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_step_to_where_there_is_no_density_is_refused(generator, value):
    """The density is Gaussian near q0's draws, and `value` where the mean would pull them."""

    def function(x):
        return torch.where(x[:, 0] > 5, value, 3 * x[:, 0] - 0.1 * x[:, 1] ** 2)

    q0 = Gaussian.isotropic(torch.zeros(2))
    settings = {"kernel": RBF(multiplier=4.0), "first_step_size": 4.0}
    sampler = held_out(LogProb(function, 2), q0, 20, 5, 30, **settings)
    start = sampler.init(generator)
    state, info = sampler.step(start)
    raw = replace(info.step_map, step_size=4.0)
    assert (raw(start.held_out)[:, 0] > 5).any()
    assert info.step_map.step_size < 4.0
    assert torch.isfinite(state.elbo)
    assert (sampler.run(state, 8).held_out[:, 0] < 5).all()


def test_held_out_particles_without_density_may_find_it(generator):
    """The ELBO is -inf while p̄ is zero at one of them, and finite once a map brings all in."""

    def function(x):
        return torch.where(x[:, 0] < -2, -torch.inf, 2 * x[:, 0] - x.square().sum(-1) / 10)

    q0 = Gaussian.isotropic(torch.zeros(2))
    settings = {"kernel": RBF(multiplier=64.0), "first_step_size": 1.0}
    sampler = held_out(LogProb(function, 2), q0, 20, 50, 100, **settings)
    start = sampler.init(generator)
    assert start.elbo == -torch.inf
    state = sampler.run(start, 10)
    assert torch.isfinite(state.elbo)
    torch.testing.assert_close(state.elbo, weigh_held_out(sampler.target, state).mean())


def test_run_stops_out_of_patience(generator):
    """At the optimum all is refused: the step halves each time, and nothing is ever moved."""
    target = Gaussian.isotropic(torch.zeros(2))
    sampler = held_out(target, target, 5, 4, 4000, first_step_size=8.0, patience=3)
    start = sampler.init(generator)
    assert start.elbo.abs() < 1e-12
    seen = []
    end = sampler.run(start, 50, on_step=lambda s, _: seen.append(s))
    assert len(seen) == int(end.n_refused) == 3
    assert end.step_size == 1.0
    assert torch.equal(end.followers, start.followers)
    assert same(sampler.run(end, 50), end)


def test_one_problem_of_a_batch_is_as_if_alone(skewed, wide, generator):
    """Steps, bandwidths and patience are each problem's own; no draws with fixed leaders."""
    settings = {"kernel": IMQ(), "first_step_size": 2.0, "patience": 2}
    sampler = held_out(skewed, wide, 15, 8, 25, **settings)
    start = sampler.init(generator, batch_shape=(2, 3))
    together = sampler.run(start, 30)
    assert together.step_size.unique().numel() > 1
    assert together.multiplier.unique().numel() > 1
    for index in ((0, 0), (1, 2), (0, 1)):
        part = {
            name: value[index] if name not in ("transition", "rng") else value
            for name, value in vars(start).items()
        }
        alone = sampler.run(HeldOutSteinISState(**part), 30)
        for name in part:
            if name not in ("transition", "rng"):
                torch.testing.assert_close(getattr(together, name)[index], getattr(alone, name))


@pytest.mark.parametrize("leaders_per_step", [None, 8])
def test_a_saved_run_continues_bit_for_bit(skewed, wide, leaders_per_step, generator, tmp_path):
    sampler = held_out(skewed, wide, 20, 9, 15, leaders_per_step=leaders_per_step)
    start = sampler.init(generator, batch_shape=(2,))
    middle = sampler.run(start, 5)
    save_state(middle, tmp_path / "run.safetensors")
    restored = load_state(HeldOutSteinISState, tmp_path / "run.safetensors")
    assert same(sampler.run(restored, 7), sampler.run(start, 12))
    assert not same(sampler.run(restored, 7), middle)


def test_recorded_maps_give_the_same_weights_elsewhere(skewed, wide, generator):
    settings = {"kernel": RBF(multiplier=2.0), "leaders_per_step": 15}
    sampler = held_out(skewed, wide, 40, 12, 60, **settings)
    start = sampler.init(generator)
    maps = []
    state = sampler.run(start, 10, on_step=lambda _, info: maps.append(info.step_map))
    sample = sampler.importance_sample(state)
    q = PushForward(wide, tuple(maps))
    torch.testing.assert_close(
        skewed.log_prob(state.followers) - q.log_prob(state.followers), sample.log_w
    )
    pulled = PulledBack(skewed, tuple(maps))
    z = start.followers
    torch.testing.assert_close(pulled.to_x(z), state.followers)
    torch.testing.assert_close(pulled.log_prob(z) - wide.log_prob(z), sample.log_w)
    assert isinstance(sample, ImportanceSample)


def test_followers_steer_nothing(skewed, wide, generator):
    sampler = held_out(skewed, wide, 15, 8, 20)
    start = sampler.init(generator)
    other = replace(start, followers=start.followers.flip(0)[:3] + 0.1, log_q=start.log_q[:3])
    a, b = sampler.run(start, 8), sampler.run(other, 8)
    assert torch.equal(a.leaders, b.leaders)
    assert torch.equal(a.held_out, b.held_out)
    assert torch.equal(a.elbo, b.elbo)


def test_dtype_follows_the_input(skewed, generator):
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float32))
    sampler = held_out(skewed, q0, 20, 10, 30, leaders_per_step=10)
    start = sampler.init(generator)
    state = sampler.run(start, 6)
    names = ("leaders", "followers", "held_out", "log_q", "elbo", "step_size", "multiplier")
    assert {getattr(state, name).dtype for name in names} == {torch.float32}
    assert state.elbo > start.elbo


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"first_step_size": 0.0}, "step_size must be positive and finite, got 0"),
        ({"first_step_size": float("inf")}, "step_size must be positive and finite"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"leaders_per_step": 1}, "leaders_per_step must be at least 2, got 1"),
        ({"leaders_per_step": 5, "n_leaders": 4}, "n_leaders must be at least 5, got 4"),
        ({"n_leaders": 1}, "n_leaders must be at least 2, got 1"),
        ({"n_followers": 1}, "n_followers must be at least 2, got 1"),
        ({"n_held_out": 1}, "n_held_out must be at least 2, got 1"),
        ({"q0": Gaussian.isotropic(torch.zeros(3))}, "q0 has d=3, but the target has d=2"),
        ({"kernel": RBF(bandwidth=2.0)}, "without a bandwidth"),
        ({"kernel": Linear()}, "must be radial"),
    ],
)
def test_settings_out_of_range_are_refused(skewed, wide, settings, message):
    with pytest.raises(ValueError, match=message):
        HeldOutSteinIS(**{"target": skewed, "q0": wide} | settings)


def test_bad_numbers_are_refused_with_the_particle(skewed, wide, generator):
    def hole(x):
        return skewed.function(x) * torch.where(x[:, 0] > 2.5, torch.nan, 1.0)

    start = held_out(skewed, wide, 4, 2, 3).init(generator)
    sampler = held_out(LogProb(hole, 2), Gaussian.isotropic(torch.full((2,), 2.5)), 4, 4, 50)
    x = torch.zeros(4, 2) + torch.arange(4.0).unsqueeze(-1)
    with pytest.raises(FloatingPointError, match=r"score is .* at particle 3 \(1 of 4"):
        sampler.step(replace(start, leaders=x))
    with pytest.raises(FloatingPointError, match=r"log_prob is nan at particle 1 \(1 of 2"):
        sampler.importance_sample(replace(start, followers=x[2:]))
    with pytest.raises(FloatingPointError, match="log_prob is nan at particle"):
        sampler.init(generator)
