"""A transition takes few tensor operations, and they do what the formulas say."""

from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from steinis_lib import Gaussian, LogProb
from steinis_lib.baselines import AIS, HAIS, linear_schedule
from steinis_lib.core.generators import resume


class Operations(TorchDispatchMode):
    """Counts the operations that PyTorch dispatches."""

    def __init__(self):
        super().__init__()
        self.n = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.n += 1
        return operation(*args, **(kwargs or {}))


def operations(call):
    with Operations() as counted:
        call()
    return counted.n


def bent(x):
    rest = x[:, 1:] - 0.3 * x[:, :1].square()
    return -0.5 * ((x[:, 0] / 2).square() + rest.square().sum(-1))


BENT = LogProb(bent, 10)
Q0 = Gaussian.isotropic(torch.full((10,), 0.1), 1.5)
MOVES = {
    "ais": (partial(AIS, step_size=0.02), 1),
    "hais": (partial(HAIS, step_size=0.2), 1),
    "hais-10l": (partial(HAIS, step_size=0.2, n_leapfrog=10), 10),
    "hais-partial": (partial(HAIS, step_size=torch.tensor(0.2), n_leapfrog=3, refresh=0.4), 3),
}
BEFORE = {"ais": 81, "hais": 77, "hais-10l": 203, "hais-partial": 107}
"""How many it took without fused operations."""
AT_MOST = {"ais": 35, "hais": 38, "hais-10l": 83, "hais-partial": 53}


@pytest.mark.parametrize("kind", MOVES)
def test_a_transition_takes_half_as_many_operations_as_it_did(kind, generator):
    """Those of the target are left out."""
    make, n_scores = MOVES[kind]
    sampler = make(BENT, Q0, n_particles=100)
    state, _ = sampler.step(sampler.init(generator))  # what is computed once is there
    of_target = operations(lambda: BENT.log_prob_and_score(state.particles))
    found = operations(lambda: sampler.step(state)) - n_scores * of_target
    assert found <= AT_MOST[kind] <= BEFORE[kind] / 2


def test_differentiation_adds_three_operations():
    """Detach the particles, start the backward pass, detach the values."""
    x = torch.randn(100, 10)

    def forth_and_back(x):
        value = bent(x)
        torch.autograd.grad(value, x, seed)

    seed = torch.ones(100)
    own = operations(partial(forth_and_back, x.requires_grad_(True)))
    assert operations(lambda: BENT.log_prob_and_score(x)) == own + 3


def plain(sampler, state):
    """A transition of HAIS, or of AIS as a leapfrog step, written down as in the books."""
    x, t = state.particles, int(state.transition)
    before, beta = sampler.schedule[t], sampler.schedule[t + 1]
    generator = resume(state.rng, x.device)
    xi = torch.randn(x.shape, generator=generator)
    u = torch.rand(x.shape[:-1], generator=generator)
    is_hais = isinstance(sampler, HAIS)
    gamma, n = (sampler.refresh, sampler.n_leapfrog) if is_hais else (1.0, 1)
    e = (
        torch.as_tensor(sampler.step_size)
        if is_hais
        else torch.tensor(2 * sampler.step_size).sqrt()
    )

    def log_f(x):
        return (1 - beta) * Q0.log_prob(x) + beta * BENT.log_prob(x)

    def score(x):
        return (1 - beta) * Q0.score(x) + beta * BENT.score(x)

    log_w = state.log_w + (beta - before) * (BENT.log_prob(x) - Q0.log_prob(x))
    v = xi if gamma == 1 else (1 - gamma) ** 0.5 * state.velocities + gamma**0.5 * xi
    y, w = x, v
    for _ in range(n):
        w = w + e / 2 * score(y)
        y = y + e * w
        w = w + e / 2 * score(y)
    energy = 0.5 * v.square().sum(-1) - log_f(x)
    energy_end = 0.5 * w.square().sum(-1) - log_f(y)
    accept = (u < (energy - energy_end).exp()).unsqueeze(-1)
    return torch.where(accept, y, x), torch.where(accept, w, -v), log_w


@pytest.mark.parametrize("kind", MOVES)
@pytest.mark.parametrize("batch_shape", [(), (2,)])
def test_transitions_are_those_of_the_formulas(kind, batch_shape, generator):
    sampler = MOVES[kind][0](BENT, Q0, n_particles=20, schedule=linear_schedule(50))
    state = sampler.init(generator, batch_shape=batch_shape)
    rates = []
    for _ in range(50):
        x, v, log_w = plain(sampler, state)
        state, info = sampler.step(state)
        rates.append(info.acceptance)
        close = partial(torch.testing.assert_close, rtol=1e-10, atol=1e-10)
        close(state.particles, x)
        close(state.log_w, log_w)
        if isinstance(sampler, HAIS):
            close(state.velocities, v)
    assert torch.stack(rates).mean() < 0.999  # decisions are among what agrees
