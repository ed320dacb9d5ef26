"""One SVGD step beside those of BlackJAX, NumPyro and Pyro, each as its user gets it.

All push the same particles towards the same target with an RBF kernel whose bandwidth is taken anew
in each step from a median. Each library differentiates the same log-density by its own means.
Before anything is timed, the step of a peer must agree with our φ at the peer's bandwidth.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from problems import Banana, particles, to_jax, use_jax
from timing import DTYPES, compared, peer, side_by_side
from torch import Tensor

from steinis_lib import RBF, SVGD, Gaussian
from steinis_lib.stein.svgd import SVGDState

jax, optax, blackjax = peer("jax"), peer("optax"), peer("blackjax")
numpyro, einstein, pyro = peer("numpyro"), peer("numpyro.contrib.einstein"), peer("pyro")
jnp = jax.numpy

SETTINGS = [(n, d) for d in (2, 10, 100) for n in (100, 500, 1000, 2000)]
STEP = 0.1
BUDGET = 3.0
"""Seconds for one setting, beyond the fewest repeats."""
MOST_NUMBERS = 10**8
"""Pyro makes several arrays of n²d numbers; where they are larger than this, it is left out."""
TOLERANCE = {"float32": 2e-3, "float64": 1e-8}
"""Largest difference of a peer's φ from ours, over the largest |φ|."""

Step = Callable[[], object]
Moved = Callable[[], np.ndarray]


def blackjax_step(target: Banana, x: Tensor) -> tuple[Step, Moved]:
    """Return BlackJAX's compiled step, and the particles after one."""
    algorithm = blackjax.svgd(jax.grad(target.jax), optax.sgd(STEP))
    fit = jax.jit(blackjax.vi.svgd.update_median_heuristic)
    state = fit(algorithm.init(to_jax(x)))
    step = jax.jit(algorithm.step)
    return lambda: jax.block_until_ready(step(state)), lambda: np.array(step(state).particles)


def numpyro_step(target: Banana, x: Tensor) -> tuple[Step, Moved]:
    """Return NumPyro's compiled step, and the particles after one."""
    start = to_jax(x)
    zeros = jnp.zeros(target.dim, start.dtype)
    flat = numpyro.distributions.Normal(zeros, 1.0).to_event(1).mask(False)  # of density 1

    def model() -> None:
        numpyro.factor("target", target.jax(numpyro.sample("x", flat)))

    svgd = einstein.SVGD(model, numpyro.optim.SGD(STEP), einstein.RBFKernel(), len(x))
    jax.eval_shape(svgd.init, jax.random.key(0))  # svgd notes its sites, and no particles are drawn
    (name,) = svgd.guide_sites
    temperatures = svgd.loss_temperature, svgd.repulsion_temperature
    particles_at = svgd.optim.init({name: start})
    state = einstein.steinvi.SteinVIState(particles_at, jax.random.key(1), *temperatures)
    step = jax.jit(svgd.update)
    return (
        lambda: jax.block_until_ready(step(state)),
        lambda: np.array(svgd.get_params(step(state)[0])[name]),
    )


def pyro_step(target: Banana, x: Tensor) -> tuple[Step, Moved]:
    """Return Pyro's step, which goes on from where the last one ended, and the particles after one.

    In the mode "multivariate" its kernel is one number for two particles, as everybody's here.
    """
    pyro.clear_param_store()
    flat = pyro.distributions.Normal(torch.zeros_like(x), 1.0).to_event(1).mask(False)
    log_prob = target.torch(x).function

    def model() -> None:
        pyro.factor("target", log_prob(pyro.sample("x", flat)))

    kernel, optimizer = pyro.infer.RBFSteinKernel(), pyro.optim.SGD({"lr": STEP})
    svgd = pyro.infer.SVGD(model, kernel, optimizer, len(x), 0, mode="multivariate")
    pyro.param("svgd_particles", x.reshape(-1).clone())

    def moved() -> np.ndarray:
        svgd.step()
        return pyro.param("svgd_particles").detach().reshape(x.shape).cpu().numpy().copy()

    return svgd.step, moved


def bandwidth(name: str, x: Tensor) -> Tensor:
    """Return h of a peer's rule, from the median of distances: a number, or one per dimension."""
    n, x = len(x), x.double()
    if name == "Pyro":
        pairs = [torch.pdist(column).square() for column in x.split(1, dim=-1)]
        return torch.stack([r.median() for r in pairs]) / math.log(n + 1)
    r = torch.pdist(x)
    if name == "NumPyro":  # every pair twice, and the distance of each particle to itself
        r = torch.cat([r, r, r.new_zeros(n)])
    return torch.as_tensor(np.median(r.cpu().numpy()) ** 2 / math.log(n))


PEERS = {"BlackJAX": blackjax_step, "NumPyro": numpyro_step, "Pyro": pyro_step}


def check(name: str, moved: np.ndarray, target: Banana, x: Tensor, dtype: str) -> float:
    """Return by how much the peer's φ differs from ours; refuse more than `TOLERANCE`."""
    if str(moved.dtype) != dtype:
        raise RuntimeError(f"{name} computes in {moved.dtype} instead of {dtype}")
    root = bandwidth(name, x).sqrt().to(x)
    score = target.torch(x).score(x)
    phi = RBF(bandwidth=1.0).field(x / root, x / root, score * root)[0] / root
    theirs = (torch.as_tensor(moved).to(x) - x) / STEP
    off = float((theirs - phi).abs().max() / phi.abs().max())
    if not off < TOLERANCE[dtype]:
        raise RuntimeError(f"{name}'s φ differs from ours by {off:.1e} of its size: other work")
    return off


def measure(args: Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Time all settings on this device."""
    for dtype in DTYPES:
        use_jax(dtype, device)
        for n, dim in SETTINGS:
            target, x = Banana(dim), particles(n, dim, DTYPES[dtype], device)
            q0 = Gaussian.isotropic(torch.zeros_like(x[0]))  # not asked for anything here
            sampler = SVGD(target.torch(x), q0, step_size=STEP)
            state = SVGDState(x, torch.tensor(0))
            cases: dict[str, Step] = {"ours": lambda s=sampler, at=state: s.step(at)}
            off, left_out = {}, []
            for name, make in PEERS.items():
                if name == "Pyro" and n * n * dim > MOST_NUMBERS:
                    left_out.append(name)
                    continue
                cases[name], moved = make(target, x)
                off[name] = check(name, moved(), target, x, dtype)
            times = side_by_side(cases, args.repeats, device, BUDGET, args.threads)
            row = {"setting": {"n": n, "d": dim, "floats": dtype}, "device": device.type}
            row |= {"difference": off, "left_out": left_out}
            yield row | compared(times, "ours")
