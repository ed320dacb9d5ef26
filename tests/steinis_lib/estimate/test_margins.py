import torch

from steinis_lib.estimate.margins import Margins

D = torch.float64


def maps():
    values = [[0.3, -1.0], [2.0, 0.5], [0.7, -0.4], [0.8, 1.5]]
    return Margins(*torch.tensor(values, dtype=D))


def test_the_maps_are_inverse_and_know_their_slopes(generator):
    z = torch.randn(50, 2, generator=generator, dtype=D).requires_grad_(True)
    r, slope = maps().to_r(z)
    (gradient,) = torch.autograd.grad(r.sum(), z)
    torch.testing.assert_close(slope, -gradient.log())
    back, same = maps().to_z(r)
    torch.testing.assert_close(back, z)
    torch.testing.assert_close(same, slope)


def test_skewness_is_taken_out(generator):
    """Log-gamma numbers become normal ones: skewness from -1.1 to nearly 0."""
    r = -torch.empty(4000, 1, dtype=D).exponential_(generator=generator).log()
    weights = torch.full((4000,), 1 / 4000, dtype=D)
    z, _ = Margins.fitted(r, weights).to_z(r)

    def skewness(x):
        return float(((x - x.mean()) / x.std()).pow(3).mean())

    assert skewness(r) > 0.9
    assert abs(skewness(z)) < 0.15
    assert abs(float(z.mean())) < 0.1
    assert abs(float(z.std()) - 1) < 0.1


def test_few_draws_leave_what_is_normal_alone(generator):
    r = torch.randn(30, 3, generator=generator, dtype=D)
    found = Margins.fitted(r, torch.full((30,), 1 / 30, dtype=D))
    assert (found.skew.abs() < 0.6).all()
    assert ((found.tail > 0.6) & (found.tail < 1.7)).all()
