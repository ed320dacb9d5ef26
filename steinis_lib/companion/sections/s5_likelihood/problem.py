"""The problems of section 5.4: sizes and settings, labels of cells, images, and q_0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, model_validator
from torch import Tensor

from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.runner.experiment import stream
from steinis_lib.companion.vae import mnist
from steinis_lib.companion.vae import networks as vae
from steinis_lib.companion.vae.networks import VAE
from steinis_lib.targets.base import Gaussian

NAME = "vae"
CONDITIONS = ("prior", "encoder", "simulated")
EXACT_UP_TO = 20
"""Latent dimensions up to here have exact determinants, larger ones first-order ones."""
AT_HAND = 1000
"""Test images that ship with the companion; pilots take the last ones of a random order."""


class VAELikelihood(Parameters):
    """Sizes and settings; |A|, the importance samples and transitions are the paper's."""

    QUICK: ClassVar[dict[str, Any]] = {
        "latent_dims": (10,),
        "n_images": 4,
        "n_images_extra": 3,
        "n_images_long": 2,
        "n_images_encoder": 2,
        "n_simulated": 2,
        "images_per_chunk": 4,
        "n_leaders": 30,
        "n_followers": 30,
        "transitions": (10, 30),
        "n_candidates": 12,
        "tuning_transitions": 20,
        "tuning_images": 2,
        "truth_chains": 30,
        "truth_transitions": 10,
        "bridge_draws": 500,
        "bridge_chains": 30,
        "bridge_transitions": 10,
        "bound_chains": 30,
        "bound_transitions": 20,
    }

    latent_dims: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (10, 20, 50), min_length=1, description="d of z; there is a trained model for 10, 20, 50"
    )
    n_images: int = Field(100, ge=2, description="test images, from the prior; the paper has 1000")
    n_images_extra: int = Field(50, ge=2, description="of these, for variants that few claims need")
    n_images_long: int = Field(20, ge=2, description="of these, for HAIS-10L")
    n_images_encoder: int = Field(9, ge=2, description="of these, from the encoder's Gaussian")
    n_simulated: int = Field(12, ge=2, description="images drawn from each decoder")
    images_per_chunk: int = Field(4, ge=2, description="computed and stored together; HAIS-10L: 2")
    n_leaders: int = Field(60, ge=2, description="|A| of SteinIS")
    n_followers: int = Field(60, ge=5, description="importance samples of each method")
    transitions: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (50, 100, 300, 1000), min_length=1, description="rising"
    )
    n_candidates: int = Field(24, ge=9, description="settings tried for each tuned method")
    tuning_transitions: int = Field(300, ge=10, description="of pilot runs; of HAIS-10L a tenth")
    tuning_images: int = Field(3, ge=2, description="pilot images for each candidate")
    truth_chains: int = Field(400, ge=10, description="the truth by HAIS: chains")
    truth_transitions: int = Field(100, ge=1, description="the same: their transitions")
    bridge_draws: int = Field(20000, ge=10, description="the truth by a bridge: draws")
    bridge_chains: int = Field(200, ge=2, description="the same: chains")
    bridge_transitions: int = Field(66, ge=1, description="the same: their transitions")
    bound_chains: int = Field(100, ge=2, description="the bounds: chains each way")
    bound_transitions: int = Field(200, ge=1, description="the same: their transitions")

    @model_validator(mode="after")
    def _sizes(self) -> VAELikelihood:
        vae.check_bundled(self.latent_dims)
        for name in ("n_images_extra", "n_images_long", "n_images_encoder"):
            if getattr(self, name) > self.n_images:
                raise ValueError(f"{name}: at most n_images = {self.n_images}")
        if self.n_images + self.tuning_images > AT_HAND:
            raise ValueError(
                f"n_images and tuning_images: {AT_HAND} images are at hand for both together"
            )
        return self


def label(condition: str, method: str, dim: int) -> str:
    """Return the label of a method's results on the images of "prior", "encoder" or "simulated"."""
    return f"{condition}-{method}-{dim}"


def tuning_label(condition: str, method: str, dim: int) -> str:
    """Return the label of a method's tuning, in "prior" or "encoder"."""
    return label(condition, f"tuning-{method}", dim)


def truth_label(dim: int) -> str:
    """Return the label of the truth of test images by HAIS."""
    return f"truth-{dim}"


def bridge_label(dim: int) -> str:
    """Return the label of the truth of test images by a bridge."""
    return f"bridge-{dim}"


def bounds_label(dim: int) -> str:
    """Return the label of the bounds for simulated images."""
    return f"bounds-{dim}"


def model_of(dim: int) -> VAE:
    """Return the trained model in 64-bit floats.

    In 32 bits a rounding error can turn a Metropolis decision, and a thousand transitions amplify
    it, so that two processors get other results.
    """
    return vae.bundled(dim).double()


def problem(
    p: VAELikelihood, model: VAE, condition: str, numbers: Sequence[int]
) -> tuple[Tensor, Tensor | None]:
    """Return images ``(k, 784)`` and, if simulated, the latents ``(k, d)`` they come from.

    Test images are those at the first places of a random order of the 1000 that are at hand;
    simulated ones are numbered in the order that they are drawn.
    """
    if condition != "simulated":
        order = torch.randperm(AT_HAND, generator=stream(p.seed, NAME, "images", 0))
        images = mnist.binarise(mnist.bundled()[order[list(numbers)]])
        return images.to(model.decoder.output_bias.dtype), None
    generator = stream(p.seed, NAME, f"simulated-{model.latent_dim}", 0)
    like = model.decoder.output_bias
    z = torch.randn(p.n_simulated, model.latent_dim, generator=generator, dtype=like.dtype)
    images = model.decoder.sample(z.unsqueeze(-2), generator).squeeze(-2)
    return images[list(numbers)], z[list(numbers)]


def initial(model: VAE, condition: str, images: Tensor) -> Gaussian:
    """Return q_0: the prior, or the encoder's Gaussian for each image."""
    if condition == "prior":
        return Gaussian.isotropic(torch.zeros(model.latent_dim, dtype=images.dtype))
    mean, log_var = model.encoder(images)
    return Gaussian(mean, torch.diag_embed((0.5 * log_var).exp()))
