"""The sizes of the experiment, its variants on images, and the labels of its cells."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field, model_validator

from steinis_lib.companion.parameters import Parameters, Rising
from steinis_lib.companion.sections.s7_extensions.plane import PlaneSizes
from steinis_lib.companion.vae import networks as vae

IMAGE_VARIANTS = ("flow", "flow-cheap", "flow-hais", "flow-bridge")
"""A Gaussian flow with weights; with scores in 16 bits; then HAIS; and then a bridge."""
TRUTH = "truth"
"""A long run of HAIS from the fitted Gaussian, which the variants on images are compared with."""
MIXTURE_SIZE = 100
"""|B| on the mixtures of section 2: one of its sizes."""


class Beyond(Parameters):
    """Sizes and settings."""

    QUICK: ClassVar[dict[str, Any]] = {
        "n_repeats": 2,
        "mixture_trials": 4,
        "trials_per_chunk": 4,
        "n_leaders": 40,
        "n_pool": 200,
        "n_transitions": 15,
        "n_followers": 200,
        "n_held_out": 100,
        "n_components": 10,
        "n_draws": 300,
        "n_iterations": 4,
        "rbm_dims": (10,),
        "rbm_trials": 2,
        "rbm_exploring": 60,
        "rbm_draws": 500,
        "latent_dims": (10,),
        "n_images": 2,
        "images_per_chunk": 2,
        "image_repeats": 2,
        "image_evaluations": 1500,
        "tuning_images": 2,
        "truth_chains": 20,
        "truth_transitions": 10,
    }

    n_repeats: int = Field(40, ge=2, description="runs of each variant on the warped mixture")
    mixture_trials: int = Field(500, ge=2, description="random mixtures of section 2")
    trials_per_chunk: int = Field(10, ge=2, description="of these, computed and stored together")
    n_leaders: int = Field(150, ge=2, description="in the plane: leaders of a transition")
    n_pool: int = Field(3000, ge=2, description="leaders in the pool, where there is one")
    n_transitions: int = Field(200, ge=2, description="at most")
    n_followers: int = Field(1000, ge=100, description="|B| on the warped mixture")
    n_held_out: int = Field(1000, ge=2, description="particles that steer, where there are some")
    n_components: int = Field(50, ge=1, description="of the mixture that M-PMC fits")
    n_draws: int = Field(5000, ge=10, description="in each iteration of M-PMC")
    n_iterations: int = Field(20, ge=1, description="of M-PMC")
    rbm_dims: Annotated[tuple[Annotated[int, Field(ge=2)], ...], Rising] = Field(
        (20, 100), min_length=1, description="d, rising"
    )
    rbm_trials: int = Field(30, ge=2, description="models at each d, the first of section 4")
    rbm_exploring: int = Field(1000, ge=1, description="transitions of the explorers")
    rbm_draws: int = Field(5000, ge=100, description="weighted draws in the end")
    latent_dims: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Rising] = Field(
        (20, 50), min_length=1, description="d of z; there is a trained model for 10, 20, 50"
    )
    n_images: int = Field(9, ge=2, description="test images, those of section 5")
    images_per_chunk: int = Field(3, ge=2, description="computed and stored together")
    image_repeats: int = Field(20, ge=2, description="runs of each variant on each image")
    image_evaluations: int = Field(4000, ge=1200, description="of the decoder, for one image")
    tuning_images: int = Field(4, ge=2, description="pilot images for each of 12 candidates")
    truth_chains: int = Field(400, ge=10, description="chains of the long runs")
    truth_transitions: int = Field(100, ge=1, description="their transitions, of 3 leapfrogs")

    @model_validator(mode="after")
    def _fits(self) -> Beyond:
        vae.check_bundled(self.latent_dims)
        if self.n_pool < self.n_leaders:
            raise ValueError("n_pool: at least n_leaders")
        return self

    @property
    def plane(self) -> PlaneSizes:
        """The sizes on the bent mixture."""
        return PlaneSizes(
            self.n_leaders, self.n_pool, self.n_transitions, self.n_held_out,
            self.n_components, self.n_draws, self.n_iterations,
        )  # fmt: skip

    @property
    def small_plane(self) -> PlaneSizes:
        """Smaller ones, for the mixtures of section 2: easier, and there are more of them."""
        return PlaneSizes(
            self.n_leaders, max(self.n_leaders, self.n_pool // 3), self.n_transitions // 2,
            max(2, self.n_held_out // 2), max(1, self.n_components // 2), self.n_draws // 5,
            max(1, self.n_iterations // 2),
        )  # fmt: skip


def warped_label(variant: str) -> str:
    """Return the label of a variant on the bent mixture."""
    return f"warped-{variant}"


def mixture_label(mixture: str, variant: str) -> str:
    """Return the label of a variant on the mixtures of section 2, "easy" or "hard" ones."""
    return f"{mixture}-{variant}"


def rbm_label(dim: int) -> str:
    """Return the label of the cell with models of section 4, at one dimension."""
    return f"rbm-{dim}"


def image_label(variant: str, dim: int) -> str:
    """Return the label of a variant, or of `TRUTH`, on images of section 5."""
    return f"vae-{variant}-{dim}"


def tuning_label(kind: str, dim: int) -> str:
    """Return the label of the pilots that choose a flow with an end of this kind."""
    return image_label(f"tuning-{kind}", dim)


def end_kind(variant: str) -> str:
    """Return the kind of end whose pilots choose a variant's flow: one of `images.ENDS`."""
    return "bridge" if variant == "flow-bridge" else "hais"
