import pytest
import torch

from steinis_lib import (
    IMQ,
    RBF,
    Gaussian,
    LogProb,
    SteinIS,
    SteinISState,
    StepSize,
    load_state,
    save_state,
)
from steinis_lib.stein.maps import build


def same(a, b):
    return all(torch.equal(getattr(a, f), getattr(b, f)) for f in a.__dataclass_fields__)


@pytest.mark.parametrize("kernel", [RBF(), IMQ()])
def test_log_q_is_the_change_of_variables_by_brute_force(skewed, wide, kernel, generator):
    """Compose the maps as one function of the first follower and differentiate all of it."""
    sampler = SteinIS(
        skewed, wide, n_leaders=12, n_followers=5, kernel=kernel, step_size=StepSize(0.4, 0.2)
    )
    first = state = sampler.init(generator)
    maps = []
    for _ in range(6):
        maps.append(build(skewed, state.leaders, kernel, sampler.step_size(int(state.transition))))
        state, _ = sampler.step(state)

    def compose(y):
        for t in maps:
            y = t(y.unsqueeze(0))[0]
        return y

    for i in range(5):
        y = first.followers[i]
        torch.testing.assert_close(state.followers[i], compose(y))
        log_det = torch.linalg.slogdet(torch.func.jacrev(compose)(y)).logabsdet
        torch.testing.assert_close(state.log_q[i], wide.log_prob(y.unsqueeze(0))[0] - log_det)


@pytest.mark.slow
def test_z_is_unbiased_on_a_skewed_target(skewed, wide, generator):
    """Mean of Ẑ over independent trials within 4 standard errors of Z, errors below 1 %."""
    sampler = SteinIS(skewed, wide, n_leaders=30, n_followers=40, kernel=RBF(multiplier=2.0))
    start = sampler.init(generator, batch_shape=(800,))
    state = sampler.run(start, 25)
    sample = sampler.importance_sample(state)
    ratio = (sample.log_z - skewed.log_z).exp()
    error = ratio.std() / len(ratio) ** 0.5
    assert state.n_folds.sum() == 0
    assert error < 0.01
    assert abs(ratio.mean() - 1) < 4 * error
    # The maps did something: plain importance sampling from q0 has far more variable weights.
    assert sample.ess.mean() > 1.5 * sampler.importance_sample(start).ess.mean()


def test_expectations_are_right_on_a_skewed_target(skewed, wide, generator):
    settings = {"kernel": RBF(multiplier=2.0), "step_size": 0.3}
    sampler = SteinIS(skewed, wide, n_leaders=100, n_followers=20_000, **settings)
    state = sampler.run(sampler.init(generator), 25)
    mean, error = sampler.importance_sample(state).expectation(lambda x: x)
    grid = torch.linspace(-8, 8, 801)
    x = torch.cartesian_prod(grid, grid)
    p = (skewed.log_prob(x) - skewed.log_z).exp() * 0.02**2
    assert ((mean - p @ x).abs() < 4 * error).all()
    assert (error < 0.02).all()


@pytest.mark.parametrize("determinant", ["exact", "switch"])
def test_continuing_equals_one_long_run_bit_for_bit(skewed, wide, determinant, generator):
    settings = {"step_size": StepSize(0.4, 0.5), "determinant": determinant}
    sampler = SteinIS(skewed, wide, n_leaders=20, n_followers=10, **settings)
    state = sampler.init(generator)
    assert same(sampler.run(sampler.run(state, 17), 23), sampler.run(state, 40))


def test_step_leaves_its_input_untouched(skewed, wide, generator):
    sampler = SteinIS(skewed, wide, n_leaders=10, n_followers=10)
    state = sampler.init(generator)
    before = [getattr(state, f).clone() for f in state.__dataclass_fields__]
    sampler.step(state)
    assert all(
        torch.equal(a, getattr(state, f))
        for a, f in zip(before, state.__dataclass_fields__, strict=True)
    )


def test_batches_are_independent_runs(skewed, wide, generator):
    sampler = SteinIS(skewed, wide, n_leaders=15, n_followers=8, step_size=0.3)
    start = sampler.init(generator, batch_shape=(2, 3))
    together = sampler.run(start, 12)
    alone = sampler.run(
        sampler.start(start.leaders[1, 2], start.followers[1, 2], start.log_q[1, 2]), 12
    )
    torch.testing.assert_close(together.followers[1, 2], alone.followers)
    torch.testing.assert_close(together.log_q[1, 2], alone.log_q)


def test_followers_do_not_influence_each_other_or_the_leaders(skewed, wide, generator):
    sampler = SteinIS(skewed, wide, n_leaders=15, n_followers=8, step_size=0.3)
    start = sampler.init(generator)
    fewer = sampler.start(start.leaders, start.followers[:3], start.log_q[:3])
    a, b = sampler.run(start, 10), sampler.run(fewer, 10)
    torch.testing.assert_close(a.leaders, b.leaders)
    torch.testing.assert_close(a.log_q[:3], b.log_q)


def test_folding_maps_are_counted_and_bias_z_upwards(lopsided, generator):
    q0 = Gaussian.isotropic(torch.zeros(1), 2.0)
    settings = {"kernel": RBF(bandwidth=0.3), "step_size": 12.0}
    sampler = SteinIS(lopsided, q0, n_leaders=20, n_followers=500, **settings)
    state, info = sampler.step(sampler.init(generator, batch_shape=(40,)))
    assert torch.equal(info.n_folds, state.n_folds)
    assert (state.n_folds > 0).any()
    ratio = sampler.importance_sample(state).log_z.exp()
    assert ratio.mean() - 1 > 4 * ratio.std() / 40**0.5


def test_stops_when_the_effective_sample_size_is_reached(skewed, wide, generator):
    settings = {"kernel": RBF(multiplier=2.0), "step_size": 0.3}
    sampler = SteinIS(skewed, wide, n_leaders=50, n_followers=100, **settings)
    state = sampler.init(generator)
    seen = []
    stopped = sampler.run_until(
        state, 500, ess_threshold=0.6, check_every=5, on_step=lambda s, _: seen.append(s)
    )
    assert 0 < len(seen) < 500
    assert len(seen) % 5 == 0
    assert int(stopped.transition) == len(seen)
    assert sampler.importance_sample(stopped).ess >= 60
    assert sampler.importance_sample(seen[-6]).ess < 60
    assert same(sampler.run_until(stopped, 500, ess_threshold=0.6), stopped)


def test_dtype_follows_the_input(skewed, generator):
    q0 = Gaussian.isotropic(torch.zeros(2, dtype=torch.float32))
    sampler = SteinIS(skewed, q0, n_leaders=10, n_followers=10)
    state = sampler.run(sampler.init(generator), 3)
    assert state.log_q.dtype == state.leaders.dtype == torch.float32


def test_nonsense_is_refused_with_the_particle(skewed, wide, generator):
    def hole(x):
        return skewed.function(x) * torch.where(x[:, 0] > 2.5, torch.nan, 1.0)

    sampler = SteinIS(LogProb(hole, 2), wide)
    leaders = torch.zeros(4, 2) + torch.arange(4.0).unsqueeze(-1)
    with pytest.raises(FloatingPointError, match=r"score is .* at particle 3 \(1 of 4"):
        sampler.step(sampler.start(leaders, torch.zeros(2, 2), torch.zeros(2)))
    with pytest.raises(FloatingPointError, match=r"log_prob is nan at particle 1 \(1 of 2"):
        sampler.importance_sample(
            sampler.start(leaders, torch.tensor([[0.0, 0.0], [3.0, 0.0]]), torch.zeros(2))
        )
    with pytest.raises(ValueError, match="at least 2 particles"):
        sampler.start(leaders[:1], torch.zeros(2, 2), torch.zeros(2))
    with pytest.raises(ValueError, match="log_q must be"):
        sampler.start(leaders, torch.zeros(2, 2), torch.zeros(3))
    start = sampler.start(leaders, torch.zeros(2, 2), torch.zeros(2))
    with pytest.raises(ValueError, match="fraction"):
        sampler.run_until(start, 1, ess_threshold=60)
    with pytest.raises(ValueError, match="check_every must be at least 1, got 0"):
        sampler.run_until(start, 1, ess_threshold=0.5, check_every=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_leaders": 1}, "n_leaders must be at least 2, got 1"),
        ({"n_followers": 0}, "n_followers must be at least 1, got 0"),
        ({"leaders_per_step": 1}, "leaders_per_step must be at least 2, got 1"),
        ({"step_size": 0.0}, "step_size must be positive and finite, got 0.0"),
    ],
)
def test_settings_out_of_range_are_refused(skewed, wide, settings, message):
    with pytest.raises(ValueError, match=message):
        SteinIS(skewed, wide, **settings)


def pooled(skewed, wide, n_leaders=40, n_followers=5, per_step=12):
    sizes = {"n_leaders": n_leaders, "n_followers": n_followers, "leaders_per_step": per_step}
    return SteinIS(skewed, wide, kernel=RBF(multiplier=2.0), **sizes)


def test_a_pool_moves_whole_by_maps_of_some_of_it(skewed, wide, generator):
    """Each map is built from different leaders of the pool, as many as asked for."""
    sampler = pooled(skewed, wide)
    state = sampler.init(generator, batch_shape=(3,))
    seen = []
    for _ in range(4):
        new, info = sampler.step(state)
        used = info.step_map.leaders
        assert used.shape == (3, 12, 2)
        for i in range(3):
            distance = torch.cdist(used[i], state.leaders[i])
            index = distance.argmin(-1)
            assert (distance.amin(-1) < 1e-6).all()
            assert len(set(index.tolist())) == 12  # without replacement
            seen.append(tuple(sorted(index.tolist())))
        torch.testing.assert_close(new.leaders, info.step_map(state.leaders))
        torch.testing.assert_close(new.followers, info.step_map(state.followers))
        state = new
    assert len(set(seen)) == 12  # other ones in each problem and each transition


def test_every_leader_of_a_pool_is_as_likely(skewed, wide, generator):
    sampler = pooled(skewed, wide, 10, 2, 3)
    state = sampler.init(generator, batch_shape=(4000,))
    used = sampler.step(state)[1].step_map.leaders
    counts = (torch.cdist(used, state.leaders) < 1e-6).double().sum((0, 1))
    expected = 4000 * 3 / 10
    assert ((counts - expected).square() / (expected * 0.7)).max() < 16  # 4 sigma


def test_z_is_unbiased_with_a_pool(skewed, wide, generator):
    sampler = pooled(skewed, wide, 60, 40)
    state = sampler.run(sampler.init(generator, batch_shape=(400,)), 25)
    ratio = (sampler.importance_sample(state).log_z - skewed.log_z).exp()
    error = ratio.std() / 20
    assert state.n_folds.sum() == 0
    assert error < 0.02
    assert abs(ratio.mean() - 1) < 4 * error


@pytest.mark.slow
def test_a_pool_overfits_less_than_its_batch_alone(skewed, wide, generator):
    """After many transitions: KL of followers, with as many scores, is lower with the pool."""
    kl = []
    for n_leaders, per_step in ((400, 12), (12, None)):
        sampler = pooled(skewed, wide, n_leaders, 100, per_step)
        state = sampler.run(sampler.init(generator, batch_shape=(20,)), 150)
        log_w = sampler.importance_sample(state).log_w
        kl.append(float(skewed.log_z - log_w.mean()))
    assert kl[0] < 0.5 * kl[1]


def test_a_pooled_run_resumes_bit_for_bit(skewed, wide, tmp_path):
    sampler = pooled(skewed, wide)
    start = sampler.init(torch.Generator().manual_seed(3))
    whole = sampler.run(start, 6)
    half = sampler.run(start, 3)
    save_state(half, tmp_path / "state.safetensors")
    torch.rand(7)  # other draws elsewhere do not matter
    assert same(sampler.run(load_state(SteinISState, tmp_path / "state.safetensors"), 3), whole)
    assert not same(sampler.run(sampler.init(torch.Generator().manual_seed(4)), 6), whole)


def test_a_whole_pool_is_algorithm_1(skewed, wide):
    """With as many leaders per step as there are, only their order differs."""
    runs = []
    for per_step in (None, 20):
        sampler = pooled(skewed, wide, 20, 5, per_step)
        state = sampler.init(torch.Generator().manual_seed(3))
        runs.append(sampler.run(state, 5))
    torch.testing.assert_close(runs[0].followers, runs[1].followers)
    torch.testing.assert_close(runs[0].log_q, runs[1].log_q)
    assert runs[0].rng.numel() == 0


def test_a_pool_is_refused_where_it_cannot_work(skewed, wide, generator):
    with pytest.raises(ValueError, match="needs at least 12 particles, got 5"):
        pooled(skewed, wide, 5).init(generator)
    x = torch.randn(20, 2)
    with pytest.raises(ValueError, match="start needs a generator"):
        pooled(skewed, wide).start(x, x, wide.log_prob(x))
