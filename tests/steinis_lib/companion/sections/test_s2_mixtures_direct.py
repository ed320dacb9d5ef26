import pytest
import torch

from steinis_lib import Gaussian, LogProb
from steinis_lib.companion.sections.s2_mixtures.direct import direct_sampling


def test_samples_are_the_targets_with_equal_weights(lopsided, generator):
    sample = direct_sampling(lopsided, (3, 40_000), generator)
    mean, error = sample.expectation(lambda x: torch.cat([x, x.square()], -1))
    exact = torch.cat([lopsided.mean, lopsided.second_moment])
    assert ((mean - exact).abs() < 4 * error).all()
    assert error.max() < 0.02
    torch.testing.assert_close(sample.ess, torch.full((3,), 4e4))


def test_log_z_is_the_known_one_or_says_nothing(generator):
    class Known(Gaussian):
        log_z = torch.tensor([0.5, -2.0])

    sample = direct_sampling(Known.isotropic(torch.zeros(2, 3)), (2, 10), generator)
    torch.testing.assert_close(sample.log_z, Known.log_z)
    torch.testing.assert_close(sample.log_z_se, torch.zeros(2), atol=1e-12, rtol=0)

    class Unknown:
        def sample(self, shape, generator):
            return torch.randn(*shape, 2, generator=generator)

    assert (direct_sampling(Unknown(), (2, 10), generator).log_w == 0).all()


def test_a_target_without_a_sampler_is_refused(generator):
    with pytest.raises(TypeError, match=r"LogProb has no sample"):
        direct_sampling(LogProb(lambda x: x.sum(-1), 2), (10,), generator)
