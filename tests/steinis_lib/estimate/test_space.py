import torch

from steinis_lib import Gaussian, LogProb
from steinis_lib.estimate.space import Space


def space(function, dim=2, dtype=torch.float64):
    scale = torch.tensor([[2.0, 0.0], [1.0, 0.5]], dtype=dtype)
    return Space(LogProb(function, dim), Gaussian(torch.tensor([1.0, -1.0], dtype=dtype), scale))


def test_the_density_is_that_of_u_with_its_gradient():
    inside = space(lambda x: -(x**4).sum(-1))
    u = torch.tensor([[0.3, -0.2], [1.0, 2.0]], dtype=torch.float64, requires_grad=True)
    x = inside.q0.mean + u @ inside.q0.scale_tril.T
    expected = -(x**4).sum(-1)  # |det L| = 1
    (gradient,) = torch.autograd.grad(expected.sum(), u)
    log_p, score = inside.log_prob_and_score(u.detach())
    torch.testing.assert_close(log_p, expected.detach())
    torch.testing.assert_close(score, gradient)


def test_the_gaussian_itself_is_standard_normal():
    q0 = space(lambda x: x.sum(-1)).q0
    u = torch.tensor([[0.5, 1.0]], dtype=torch.float64)
    unit = Gaussian.isotropic(torch.zeros(2, dtype=torch.float64))
    wide = Gaussian(q0.mean, 3 * q0.scale_tril)
    torch.testing.assert_close(Space(q0, q0).log_prob(u), unit.log_prob(u))
    expected = Gaussian.isotropic(torch.zeros(2, dtype=torch.float64), 3.0).log_prob(u)
    torch.testing.assert_close(Space(wide, q0).log_prob(u), expected)


def test_numbers_are_64_bits_and_points_are_as_q0_is():
    seen = []

    def function(x):
        seen.append(x.dtype)
        return -x.square().sum(-1)

    inside = space(function, dtype=torch.float32)
    log_p, score = inside.log_prob_and_score(torch.zeros(3, 2, dtype=torch.float64))
    assert log_p.dtype == score.dtype == torch.float64
    assert set(seen) == {torch.float32}
    assert inside.to_x(torch.zeros(1, 2, dtype=torch.float64)).dtype == torch.float32


def test_what_is_no_number_has_density_zero_and_no_score():
    inside = space(lambda x: torch.where(x[:, 0] > 1, torch.nan, -x.square().sum(-1)))
    u = torch.tensor([[-1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    log_p, score = inside.log_prob_and_score(u)
    assert torch.isfinite(log_p).tolist() == [True, False]
    assert log_p[1] == -torch.inf
    assert score[1].tolist() == [0.0, 0.0]
    assert inside.log_prob(u)[1] == -torch.inf
