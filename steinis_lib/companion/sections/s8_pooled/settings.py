"""The sizes of the experiment, and the labels of its cells."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.vae import networks as vae

Sizes = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising]

CONDITIONS = ("standard", "matched")
"""The initial distributions of the Boltzmann machines, those of section 4."""
TARGETS = ("bent", "easy")
"""The targets of the floor law: the bent mixture of section 3, and easy mixtures of section 2."""
LEADERS = ("pool", "fixed", "sobol")
"""How leaders are chosen for the floor law: from a pool, or all in each map, drawn or spread."""


class Pooled(Parameters):
    """Sizes; those of the problems are those of sections 2 to 5."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_leaders": 300,
        "leaders_per_step": 60,
        "latent_dims": (10,),
        "n_images": 4,
        "n_images_wide": 2,
        "n_images_long": 2,
        "images_per_chunk": 2,
        "image_transitions": (5, 10, 15),
        "long_from": 15,
        "image_followers": (20, 60, 120),
        "n_images_without": 2,
        "rbm_dims": (10,),
        "rbm_trials": 5,
        "rbm_transitions": (5, 10),
        "rbm_followers": 100,
        "mixture_trials": 5,
        "mixture_transitions": (10, 20),
        "mixture_followers": 100,
        "n_repeats": 2,
        "plane_transitions": (10, 20),
        "plane_followers": 200,
        "floor_leaders": (60, 120),
        "floor_fixed_up_to": 120,
        "floor_mixtures": 2,
        "floor_dims": (2, 5),
        "answer_transitions": (5, 10),
        "answer_leaders": (100, 300),
        "answer_followers": 200,
    }

    n_leaders: int = Field(10_000, ge=2, description="|A|, the pool")
    leaders_per_step: int = Field(200, ge=2, description="of a map, each with a score")
    latent_dims: Sizes = Field(
        (10, 20, 50), min_length=1, description="d of z; there is a trained model for 10, 20, 50"
    )
    n_images: int = Field(100, ge=2, description="test images, those of section 5")
    n_images_wide: int = Field(50, ge=1, description="the same, at d of 50 and more")
    n_images_long: int = Field(15, ge=1, description="the first of these, which go on longer")
    images_per_chunk: int = Field(4, ge=1, description="computed and stored together")
    image_transitions: Sizes = Field((20, 80, 190, 290), description="rising")
    long_from: int = Field(
        190, ge=1, description="so many transitions, and more, take n_images_long images"
    )
    image_followers: Sizes = Field((60, 200, 600, 2000), description="|B|, rising, nested")
    n_images_without: int = Field(12, ge=2, description="images of ablations, at one d")
    rbm_dims: Sizes = Field((10, 20, 50, 100), description="d, rising")
    rbm_trials: int = Field(20, ge=1, description="models of section 4, a multiple of 5")
    rbm_transitions: Sizes = Field((25, 50), description="rising")
    rbm_followers: int = Field(600, ge=20, description="|B|")
    mixture_trials: int = Field(60, ge=1, description="mixtures of section 2, a multiple of 5")
    mixture_transitions: Sizes = Field((100, 300), description="rising")
    mixture_followers: int = Field(1000, ge=100, description="|B|; sections read off 100 of them")
    n_repeats: int = Field(20, ge=2, description="runs on the bent mixture")
    plane_transitions: Sizes = Field((100, 300, 1000), description="rising, on the bent mixture")
    plane_followers: int = Field(2000, ge=20, description="|B| on the bent mixture")
    floor_leaders: Sizes = Field(
        (50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000), description="|A| of the floor law"
    )
    floor_fixed_up_to: int = Field(1000, ge=1, description="the most where all build each map")
    floor_mixtures: int = Field(6, ge=2, description="easy mixtures, and runs on the bent one")
    floor_dims: Sizes = Field((1, 2, 5, 10, 20, 50), description="d of the skewed products")
    answer_transitions: Sizes = Field((100, 300, 1000), description="rising, from the answer")
    answer_leaders: Sizes = Field((2000, 10_000), min_length=1, description="|A| there")
    answer_followers: int = Field(1000, ge=20, description="|B| there, and on skewed products")

    @model_validator(mode="after")
    def _fits(self) -> Pooled:
        vae.check_bundled(self.latent_dims)
        for name in ("n_images_wide", "n_images_long", "n_images_without"):
            if getattr(self, name) > self.n_images:
                raise ValueError(f"{name}: at most n_images = {self.n_images}")
        for name in ("rbm_trials", "mixture_trials"):
            if getattr(self, name) % 5:
                raise ValueError(f"{name}: a multiple of 5, as those sections draw 5 at a time")
        return self


WIDE = 50
"""The latent dimension from which on there are `n_images_wide` images."""


def image_label(dim: int) -> str:
    """Return the label of the images at a latent dimension."""
    return f"images-{dim}"


def without_label(part: str, dim: int) -> str:
    """Return the label of the images without a part of the method."""
    return f"without-{part}-{dim}"


def rbm_label(condition: str, dim: int) -> str:
    """Return the label of the Boltzmann machines from one initial distribution."""
    return f"rbm-{condition}-{dim}"


def mixture_label(mixture: str) -> str:
    """Return the label of the "easy" or "hard" mixtures of section 2."""
    return f"mixtures-{mixture}"


def floor_label(target: str, leaders: str, n: int) -> str:
    """Return the label of the floor law's runs with n leaders."""
    return f"floor-{target}-{leaders}-{n}"


def answer_label(dim: int, n: int) -> str:
    """Return the label of runs that start at the answer, with a pool of n."""
    return f"answer-{dim}-{n}"


def product_label(dim: int) -> str:
    """Return the label of runs on skewed products."""
    return f"product-{dim}"
