"""Section 5: the likelihood of images under deep generative models."""

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s5_likelihood import statistics
from steinis_lib.companion.sections.s5_likelihood.experiment import EXPERIMENT

SECTION = Section(
    title="The likelihood of images under a deep generative model",
    notebook="05_vae",
    experiments=(EXPERIMENT,),
    statistics={
        "vae-steinis-hais": statistics.steinis_ahead,
        "vae-hais-ten": statistics.ten_ahead,
        "vae-more-transitions": statistics.gain,
        "vae-performs-well": statistics.distance,
    },
)
