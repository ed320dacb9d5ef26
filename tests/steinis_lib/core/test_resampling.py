import torch

from steinis_lib.core.resampling import systematic


def test_systematic_resampling_rounds_k_times_the_weight(generator):
    log_w = torch.randn(50, 30, generator=generator) * 1.5
    index = systematic(log_w, 40, generator)
    counts = torch.zeros(50, 30).scatter_add(-1, index, torch.ones(50, 40))
    expected = 40 * log_w.softmax(-1)
    assert ((counts - expected).abs() < 1 + 1e-9).all()


def test_systematic_resampling_is_unbiased(generator):
    log_w = torch.tensor([0.1, 0.25, 0.65]).log()
    index = systematic(log_w.expand(20_000, 3), 1, generator).squeeze(-1)
    share = torch.bincount(index, minlength=3) / 20_000
    error = (log_w.exp() * (1 - log_w.exp()) / 20_000).sqrt()
    assert ((share - log_w.exp()).abs() < 4 * error).all()


def test_a_weight_of_zero_is_never_drawn(generator):
    log_w = torch.tensor([-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf]).expand(4000, 5)
    assert set(systematic(log_w, 3, generator).flatten().tolist()) == {1, 3}


def test_without_a_generator_the_points_are_in_the_middle():
    log_w = torch.tensor([0.1, 0.25, 0.65]).log().expand(2, 3)
    index = systematic(log_w, 5, None)  # at 0.1, 0.3, 0.5, 0.7, 0.9
    assert torch.equal(index[..., 1:], torch.tensor([1, 2, 2, 2]).expand(2, 4))
    assert torch.equal(systematic(torch.zeros(4), 4, None), torch.arange(4))
