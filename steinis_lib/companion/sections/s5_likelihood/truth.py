"""What log p(x) is: two routes for test images, and bounds for images drawn from the decoder.

All of them start from a Gaussian that `GaussianFlow` fits to the posterior of each image, and work
in its coordinates. The two routes share nothing else. `by_hais` fits from the prior, and anneals
from the Gaussian to the posterior. `by_bridge` fits from the encoder's Gaussian, and puts a bridge
between draws of the Gaussian and chains on the posterior; its random numbers are its own.

For drawn images a sample of the posterior is known, so that their log p(x) is bounded on both
sides. A mode that the Gaussian misses would show there, as the known sample can lie in it.
"""

from __future__ import annotations

import torch
import xarray as xr
from torch import Tensor

from steinis_lib.baselines.geometric_path import linear_schedule
from steinis_lib.baselines.hais import HAIS
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.runner.experiment import Chunk
from steinis_lib.companion.sections.s5_likelihood.bidirectional import bidirectional
from steinis_lib.companion.sections.s5_likelihood.problem import (
    VAELikelihood,
    initial,
    model_of,
    problem,
)
from steinis_lib.extensions.bridge_sampling import BridgeSampling
from steinis_lib.extensions.gaussian_flow import GaussianFlow
from steinis_lib.importance import importance_sampling
from steinis_lib.targets.base import Gaussian
from steinis_lib.targets.whitened import WhitenedTarget

FIT_LEADERS, FIT_TRANSITIONS, FIT_FULL_STEPS = 200, 25, 12
"""Of the Gaussian flow."""
N_LEAPFROG, STEP_SIZE = 3, 0.65
"""Of all chains, in the coordinates of the fitted Gaussian."""
ROUGH_LEADERS, ROUGH_TRANSITIONS, ROUGH_DRAWS = 100, 15, 400
"""Of the fit in `rough_log_z`, and of the Gaussian that comes of it."""


def fitted(
    posterior: DecoderPosterior,
    q0: Gaussian,
    generator: torch.Generator,
    n_leaders: int = FIT_LEADERS,
    n_transitions: int = FIT_TRANSITIONS,
) -> Gaussian:
    """Fit a Gaussian to the posterior of each image, from q_0."""
    flow = GaussianFlow(posterior, q0, n_leaders=n_leaders, full_steps=FIT_FULL_STEPS)
    start = flow.init(generator, batch_shape=tuple(posterior.images.shape[:-1]))
    return flow.proposal(flow.run(start, n_transitions))


def rough_log_z(posterior: DecoderPosterior, generator: torch.Generator) -> Tensor:
    """Return log p̂(x) of each image by importance sampling from a fitted Gaussian."""
    q = fitted(posterior, posterior.prior(), generator, ROUGH_LEADERS, ROUGH_TRANSITIONS)
    shape = (*posterior.images.shape[:-1], ROUGH_DRAWS)
    return importance_sampling(posterior, q, shape, generator).log_z


def by_hais(p: VAELikelihood, chunk: Chunk, *, dim: int) -> xr.Dataset:
    """Estimate log p(x) of test images by HAIS, from a Gaussian that is fitted from the prior."""
    model, generator = model_of(dim), chunk.generator()
    images, _ = problem(p, model, "prior", chunk.trials)
    posterior = DecoderPosterior(model.decoder, images)
    inside = WhitenedTarget(posterior, fitted(posterior, posterior.prior(), generator))
    sampler = HAIS(
        inside, inside.base(), n_particles=p.truth_chains,
        schedule=linear_schedule(p.truth_transitions), step_size=STEP_SIZE, n_leapfrog=N_LEAPFROG,
    )  # fmt: skip
    end = sampler.run(sampler.init(generator, batch_shape=(chunk.n_trials,)))
    sample = sampler.importance_sample(end)
    return _per_image({
        "log_z": sample.log_z,
        "standard_error": sample.log_z_se,
        "ess": sample.ess / sample.n,
        "pareto_k": sample.pareto_k,
    })  # fmt: skip


def by_bridge(p: VAELikelihood, chunk: Chunk, *, dim: int) -> xr.Dataset:
    """Estimate log p(x) of test images by a bridge, from a Gaussian fitted from the encoder's."""
    model, generator = model_of(dim), chunk.generator()
    images, _ = problem(p, model, "encoder", chunk.trials)
    posterior = DecoderPosterior(model.decoder, images)
    start = initial(model, "encoder", images)
    inside = WhitenedTarget(posterior, fitted(posterior, start, generator))
    sampler = BridgeSampling(
        inside, inside.base(), n_draws=p.bridge_draws, n_chains=p.bridge_chains,
        step_size=STEP_SIZE, n_leapfrog=N_LEAPFROG,
    )  # fmt: skip
    begun = sampler.init(generator, batch_shape=(chunk.n_trials,))
    found = sampler.estimate(sampler.run(begun, p.bridge_transitions))
    return _per_image({
        "log_z": found.log_z, "standard_error": found.log_z_se, "overlap": found.overlap
    })  # fmt: skip


def bound(p: VAELikelihood, chunk: Chunk, *, dim: int) -> xr.Dataset:
    """Bound log p(x) of drawn images on both sides, from a Gaussian fitted from the prior."""
    model, generator = model_of(dim), chunk.generator()
    images, latents = problem(p, model, "simulated", chunk.trials)
    assert latents is not None
    posterior = DecoderPosterior(model.decoder, images)
    q = fitted(posterior, posterior.prior(), generator)
    inside = WhitenedTarget(posterior, q)
    centred = (latents - q.mean).unsqueeze(-1)
    bounds = bidirectional(
        inside, inside.base(),
        torch.linalg.solve_triangular(q.scale_tril, centred, upper=False).squeeze(-1),
        generator, n_chains=p.bound_chains, schedule=linear_schedule(p.bound_transitions),
        step_size=STEP_SIZE, n_leapfrog=N_LEAPFROG,
    )  # fmt: skip
    return _per_image({"lower": bounds.lower, "upper": bounds.upper})


def _per_image(values: dict[str, Tensor]) -> xr.Dataset:
    return xr.Dataset({name: ("trial", v.numpy()) for name, v in values.items()})
