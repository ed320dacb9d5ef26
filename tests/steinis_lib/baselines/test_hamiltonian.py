import pytest
import torch

from steinis_lib import Gaussian, GaussianMixture
from steinis_lib.baselines.geometric_path import GeometricPath
from steinis_lib.baselines.hamiltonian import leapfrog


@pytest.fixture
def crossed():
    """A path between a Gaussian and a mixture, both without symmetry and with analytic scores."""
    means = torch.tensor([[1.0, -0.4], [-0.6, 0.9]])
    scales = torch.tensor([[0.7, 1.1], [0.5, 0.8]])
    target = GaussianMixture(torch.tensor([0.3, 0.7]).log(), means, scales)
    return GeometricPath(Gaussian.isotropic(torch.tensor([0.2, 0.1]), 1.3), target)


def test_leapfrog_runs_back_when_the_velocity_is_negated(crossed, generator):
    step_size = torch.tensor([0.3, 0.1, 0.5])
    x, v = torch.randn(2, 3, 20, 2, generator=generator)
    start = crossed.evaluate(x)
    there, v_there = leapfrog(crossed, start, v, 0.6, step_size, 25)
    back, v_back = leapfrog(crossed, there, -v_there, 0.6, step_size, 25)
    assert (there.particles - x).abs().mean() > 0.3
    torch.testing.assert_close(back.particles, x, atol=1e-10, rtol=0)
    torch.testing.assert_close(-v_back, v, atol=1e-10, rtol=0)


def test_leapfrog_preserves_volume_and_nearly_energy(crossed, generator):
    def move(z, h, n):
        start, h = crossed.evaluate(z[None, :2]), torch.tensor(h)
        point, v = leapfrog(crossed, start, z[None, 2:], 0.6, h, n)
        return torch.cat([point.particles[0], v[0]])

    def energy(z):
        x = z[None, :2]
        log_f = 0.4 * crossed.q0.log_prob(x) + 0.6 * crossed.target.log_prob(x)
        return 0.5 * z[2:].square().sum() - log_f[0]

    for z in torch.randn(5, 4, generator=generator):
        jacobian = torch.func.jacrev(move)(z, 0.6, 3)
        torch.testing.assert_close(torch.linalg.det(jacobian), torch.tensor(1.0))
        assert (jacobian - torch.eye(4)).abs().max() > 0.5
        coarse, fine = (energy(move(z, h, n)) - energy(z) for h, n in ((0.04, 25), (0.02, 50)))
        torch.testing.assert_close(coarse / fine, torch.tensor(4.0), rtol=0.05, atol=0)
