"""One transition of AIS and HAIS beside that of TensorFlow Probability's annealed importance chain.

TensorFlow Probability runs through JAX, compiled as a whole: it draws from q_0 and takes all
transitions in one call, and so do we. Both get the same target, q_0, linear schedule, step size and
number L of leapfrog steps; our AIS with Langevin moves is a Hamiltonian move with L = 1. Before
anything is timed, log p̄ of both must agree, and their estimates of log Z of the banana; so few
transitions of so few particles as there are here do not estimate that of the decoder.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from problems import Banana, decoder_posterior, to_jax, use_jax
from timing import DTYPES, compared, peer, side_by_side
from torch import Tensor

from steinis_lib import Gaussian
from steinis_lib.baselines.ais import AIS
from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS

jax, tfp = peer("jax"), peer("tensorflow_probability.substrates.jax")
jnp = jax.numpy

METHODS = {1: ("AIS", "HAIS"), 10: ("HAIS",)}
"""L, and those of our methods that take so many leapfrog steps."""
BANANAS = ((10, 100), (10, 1000), (50, 1000))
"""d, and the number of chains."""
STEP, SCALE = 0.2, 1.5
"""Leapfrog step, and standard deviation of the Gaussian q_0 of the banana."""
BUDGET = 3.0
"""Seconds for one setting, beyond the fewest repeats."""
LOG_Z_WITHIN = 0.5
"""So far, and five standard errors, the two estimates of log Z of a banana may be apart."""


@dataclass(frozen=True)
class Problem:
    """A target with q_0, for us and as JAX's log p̄, and the shape (*batch, n) of its particles."""

    name: str
    target: Any
    jax: Callable[[Any], Any]
    q0: Gaussian
    scale: float
    shape: tuple[int, ...]
    transitions: int


def bananas(dtype: torch.dtype, device: torch.device) -> list[Problem]:
    """Return cheap targets: what is timed is all that is not the target."""
    found = []
    for dim, n in BANANAS:
        like, banana = torch.zeros(dim, dtype=dtype, device=device), Banana(dim)
        q0 = Gaussian.isotropic(like, SCALE)
        made = Problem("banana", banana.torch(like), banana.jax, q0, SCALE, (n,), 50)
        found.append(made)
    return found


def decoder(dtype: torch.dtype, device: torch.device) -> Problem:
    """Return the posterior of section 5.4, whose matrix products are nearly all the work."""
    target, _ = decoder_posterior(20, 10, 50, dtype, device)
    net = target.decoder
    weights = (net.hidden_weight, net.hidden_bias, net.output_weight, net.output_bias)
    w, b, v, c = (to_jax(t) for t in weights)
    images = to_jax(target.images)[:, None]

    def log_prob(z: Any) -> Any:
        logits = jnp.tanh(z @ w + b) @ v + c
        likelihood = (images * logits - jax.nn.softplus(logits)).sum(-1)
        return likelihood - 0.5 * ((z**2).sum(-1) + target.dim * math.log(2 * math.pi))

    return Problem("decoder", target, log_prob, target.prior(), 1.0, (10, 50), 5)


def ours(problem: Problem, method: str, leapfrog: int) -> Callable[[], Tensor]:
    """Return our whole run, which gives the log-weights."""
    p, (*batch, n) = problem, problem.shape
    generator = torch.Generator(p.q0.mean.device).manual_seed(1)
    settings: dict[str, Any] = {"n_particles": n, "schedule": linear_schedule(p.transitions)}
    sampler: Any = HAIS(p.target, p.q0, **settings, step_size=STEP, n_leapfrog=leapfrog)
    if method == "AIS":
        sampler = AIS(p.target, p.q0, **settings, step_size=STEP**2 / 2)

    def run() -> Tensor:
        return sampler.run(sampler.init(generator, batch_shape=tuple(batch))).log_w

    return run


def theirs(problem: Problem, leapfrog: int) -> Callable[[], Any]:
    """Return the peer's whole run, compiled, which gives the log-weights."""
    p = problem
    dim, dtype = p.target.dim, str(p.q0.mean.dtype).removeprefix("torch.")
    constant = dim * (math.log(p.scale) + 0.5 * math.log(2 * math.pi))

    def kernel(log_prob: Callable[[Any], Any]) -> Any:
        return tfp.mcmc.HamiltonianMonteCarlo(log_prob, jnp.asarray(STEP, dtype), leapfrog)

    @jax.jit
    def run(key: Any) -> Any:
        first, second = jax.random.split(key)
        return tfp.mcmc.sample_annealed_importance_chain(
            num_steps=p.transitions,
            proposal_log_prob_fn=lambda x: -0.5 * ((x / p.scale) ** 2).sum(-1) - constant,
            target_log_prob_fn=p.jax,
            current_state=p.scale * jax.random.normal(first, (*p.shape, dim), dtype),
            make_kernel_fn=kernel,
            seed=second,
        )[1]

    keys = iter(range(10**9))
    return lambda: jax.block_until_ready(run(jax.random.key(next(keys))))


def check(problem: Problem, our_w: Tensor, their_w: Any) -> dict[str, float]:
    """Return both estimates of log Z and their standard errors; refuse what is too far apart."""
    x = problem.q0.sample(problem.shape, torch.Generator(problem.q0.mean.device).manual_seed(2))
    mine, other = problem.target.log_prob(x), torch.as_tensor(np.array(problem.jax(to_jax(x))))
    if other.dtype != mine.dtype or not torch.allclose(mine.cpu(), other, rtol=1e-4, atol=1e-3):
        raise RuntimeError(f"log p̄ of the {problem.name} differs between us and JAX")
    found: dict[str, float] = {}
    if problem.name == "decoder":
        return found
    for name, log_w in (("ours", our_w), ("TFP", torch.as_tensor(np.array(their_w)))):
        w = log_w.cpu().double()
        log_z = w.logsumexp(0) - math.log(len(w))
        se = (w - log_z).exp().std() / math.sqrt(len(w))
        found |= {name: float(log_z), f"{name}, standard error": float(se)}
    error = math.hypot(*(found[f"{name}, standard error"] for name in ("ours", "TFP")))
    if not abs(found["ours"] - found["TFP"]) < LOG_Z_WITHIN + 5 * error:
        raise RuntimeError(f"log Z of the {problem.name} differs: {found}")
    return found


def measure(args: Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Time all settings on this device; seconds are those of one transition."""
    for floats, dtype in DTYPES.items():
        use_jax(floats, device)
        for problem in (*bananas(dtype, device), decoder(dtype, device)):
            first, *more = problem.shape
            chains = " × ".join(map(str, problem.shape)) if more else first
            for leapfrog, methods in METHODS.items():
                peers = theirs(problem, leapfrog)
                for method in methods:
                    cases = {"ours": ours(problem, method, leapfrog), "TFP": peers}
                    log_z = check(problem, cases["ours"](), cases["TFP"]())
                    times = side_by_side(cases, args.repeats, device, BUDGET, args.threads)
                    per = {k: [t / problem.transitions for t in v] for k, v in times.items()}
                    setting = {"target": problem.name, "d": problem.target.dim}
                    setting |= {"chains": chains, "our method": method}
                    setting |= {"L": leapfrog, "floats": floats}
                    row = {"setting": setting, "device": device.type, "log_z": log_z}
                    yield row | compared(per, "ours")
