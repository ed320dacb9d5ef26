"""Section 2: the errors of estimates on mixtures, for all methods of the paper's Figure 3."""

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s2_mixtures import statistics
from steinis_lib.companion.sections.s2_mixtures.experiment import EXPERIMENT

SECTION = Section(
    title="Estimating expectations and Z",
    notebook="02_gmm_estimation",
    experiments=(EXPERIMENT,),
    statistics={
        "mse-rate": statistics.mse_rate,
        "steinis-near-direct": statistics.steinis_near_direct,
        "svgd-near-steinis": statistics.svgd_near_steinis,
        "path-integration-worse": statistics.path_integration_worse,
    },
)
