import torch

from steinis_lib import RBF, SVGD, Gaussian


def test_one_step_is_the_update_as_printed(lopsided, generator):
    """Eq. 9, particle by particle, with a kernel of given bandwidth."""
    q0 = Gaussian.isotropic(torch.zeros(1))
    svgd = SVGD(lopsided, q0, n_particles=7, kernel=RBF(bandwidth=0.8), step_size=0.2)
    state = svgd.init(generator)
    new, info = svgd.step(state)
    x, s = state.particles, lopsided.score(state.particles)
    for i in range(7):
        push = 0.0
        for j in range(7):
            k = torch.exp(-((x[j] - x[i]) ** 2) / 0.8)
            push = push + k * s[j] - 2 / 0.8 * (x[j] - x[i]) * k
        torch.testing.assert_close(new.particles[i], x[i] + 0.2 * push / 7)
    assert info.step_size == 0.2
    torch.testing.assert_close(info.velocity, ((new.particles - x) / 0.2).square().mean().sqrt())


def test_particles_reach_the_targets_moments(lopsided, generator):
    svgd = SVGD(lopsided, Gaussian.isotropic(torch.ones(1)), step_size=1.0)
    state = svgd.init(generator)
    end = svgd.run(state, 600).particles
    assert abs(end.mean() - lopsided.mean) < 0.02
    assert abs(end.square().mean() - lopsided.second_moment) < 0.1
    assert abs(state.particles.mean() - lopsided.mean) > 0.05  # there was something to do
