import pytest
import torch

from steinis_lib import Gaussian
from steinis_lib.core import checks


def test_dimensions_that_differ_are_refused():
    two, three = (Gaussian.isotropic(torch.zeros(d)) for d in (2, 3))
    checks.check_q0(two, two)
    with pytest.raises(ValueError, match="q0 has d=3, but the target has d=2"):
        checks.check_q0(two, three)


@pytest.mark.parametrize("step_size", [0.0, -1.0, torch.inf, torch.nan, torch.tensor([0.1, 0.0])])
def test_a_step_size_that_is_not_positive_and_finite_is_refused(step_size):
    with pytest.raises(ValueError, match="step_size must be positive and finite"):
        checks.check_step_size(step_size)


def test_good_step_sizes_and_schedules_pass():
    for step_size in (0.1, torch.tensor([0.1, 0.2]), lambda transition: -1.0):
        checks.check_step_size(step_size)


def test_particles_are_floating_with_an_axis_of_coordinates():
    checks.check_particles(torch.zeros(4, 3, 2), "x", 2)
    for x, message in (
        (torch.zeros(3), "for 1-D problems add a last axis"),
        (torch.zeros(3, 1), "x has dimension d=1, but the target has d=2"),
        (torch.zeros(0, 2), "x needs at least 1 particles, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            checks.check_particles(x, "x", 2)
    with pytest.raises(TypeError, match="got a torch.int64 tensor"):
        checks.check_particles(torch.zeros(3, 2, dtype=torch.int64), "x")
    with pytest.raises(TypeError, match="got a list"):
        checks.check_particles([0.0], "x")


def test_the_first_bad_particle_is_named():
    log_p = torch.zeros(2, 3)
    log_p[0, 0] = -torch.inf
    checks.check_log_density(log_p, "log p")
    log_p[1, 0], log_p[1, 2] = torch.inf, torch.nan
    with pytest.raises(FloatingPointError, match=r"log p is inf at particle \(1, 0\) \(2 of 6"):
        checks.check_log_density(log_p, "log p")
    with pytest.raises(FloatingPointError, match=r"x is \[-inf, 0.0\] at particle 1 \(1 of 2"):
        checks.check_finite(torch.tensor([[0.0, 0.0], [-torch.inf, 0.0]]), "x")
