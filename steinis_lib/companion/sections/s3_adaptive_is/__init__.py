"""Section 3: SteinIS and adaptive importance sampling on bent mixtures."""

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s3_adaptive_is import statistics
from steinis_lib.companion.sections.s3_adaptive_is.experiment import EXPERIMENT

SECTION = Section(
    title="SteinIS and adaptive importance sampling",
    notebook="03_adaptive_is",
    experiments=(EXPERIMENT,),
    statistics={
        "warped-kl": statistics.warped_kl,
        "adaptive-is-kl": statistics.adaptive_is_kl,
        "adaptive-is-order": statistics.adaptive_is_order,
        "mixtures-cannot": statistics.mixtures_cannot,
        "refine-adaptive-is": statistics.refine_adaptive_is,
    },
)
