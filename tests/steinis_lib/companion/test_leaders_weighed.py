import torch

from steinis_lib import RBF, SteinIS
from steinis_lib.companion.leaders_weighed import LeadersWeighed

OPTIONS = {"kernel": RBF(), "step_size": 0.3, "n_leaders": 12, "n_followers": 12}


def test_the_density_of_leaders_is_that_of_followers_at_the_same_points(skewed, wide, generator):
    run = LeadersWeighed(skewed, wide, **OPTIONS)
    state = run.init(generator, batch_shape=(3,))
    assert torch.equal(state.leaders, state.followers)
    assert torch.equal(state.log_q, wide.log_prob(state.leaders))
    plain = SteinIS(skewed, wide, **OPTIONS)
    twin = plain.start(state.leaders, state.leaders.clone(), state.log_q)
    for _ in range(8):
        state, _ = run.step(state)
        twin, _ = plain.step(twin)
        assert torch.allclose(state.leaders, state.followers, rtol=1e-12)
    assert torch.equal(state.log_q, twin.log_q)
    assert torch.equal(state.followers, twin.followers)
    assert torch.equal(run.importance_sample(state).particles, state.followers)


def test_it_is_no_estimate(skewed, wide):
    """Ẑ of leaders, unlike that of followers, is far off the truth with narrow kernels."""
    found = {}
    for cls in (SteinIS, LeadersWeighed):
        run = cls(skewed, wide, **OPTIONS)
        state = run.init(torch.Generator().manual_seed(4), batch_shape=(400,))
        z = (run.importance_sample(run.run(state, 20)).log_z - skewed.log_z).exp()
        found[cls] = abs(float(z.mean()) - 1) / float(z.std() / 20)
    assert found[SteinIS] < 4 < found[LeadersWeighed]
