import torch

from steinis_lib.core.generators import random_batch


def drawn(dtype, default=torch.float32):
    x = torch.arange(24, dtype=dtype).reshape(2, 12, 1)
    usual = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        return random_batch(x, 5, torch.Generator().manual_seed(4))
    finally:
        torch.set_default_dtype(usual)


def test_a_batch_is_drawn_without_replacement_in_each_problem():
    batch = drawn(torch.float64)
    assert batch.shape == (2, 5, 1)
    for problem, particles in enumerate(batch.squeeze(-1).tolist()):
        assert len(set(particles)) == 5
        assert all(12 * problem <= particle < 12 * (problem + 1) for particle in particles)
    assert (batch[0] + 12 != batch[1]).any()


def test_a_batch_depends_on_no_dtype():
    batch = drawn(torch.float64)
    assert torch.equal(drawn(torch.float32).double(), batch)
    assert torch.equal(drawn(torch.float64, default=torch.float64), batch)
