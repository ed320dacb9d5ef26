"""Section 1: how fast the proposal approaches the target, and checks of Algorithm 1."""

from functools import partial

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s1_convergence import (
    algorithm_checks,
    experiment,
    readings_experiment,
)
from steinis_lib.companion.sections.s1_convergence import algorithm_checks_statistics as on_checks
from steinis_lib.companion.sections.s1_convergence import statistics as on_curves

SECTION = Section(
    title="Does the proposal approach the target?",
    notebook="01_gmm_convergence",
    experiments=(
        experiment.EXPERIMENT,
        algorithm_checks.EXPERIMENT,
        readings_experiment.EXPERIMENT,
    ),
    statistics={
        "kl-exponential-steinis": partial(on_curves.decades_of_kl, system="steinis"),
        "kl-exponential-svgd": partial(on_curves.decades_of_kl, system="svgd"),
        "ksd-exponential-steinis": partial(on_curves.decades_of_ksd, system="steinis"),
        "ksd-exponential-svgd": partial(on_curves.decades_of_ksd, system="svgd"),
        "kl-rate-is-ksd": on_curves.kl_rate_is_ksd,
        "kl-monotone-mean-field": partial(on_curves.kl_rises, system="mean-field"),
        "kl-monotone-followers": partial(on_curves.kl_rises, system="steinis"),
        "z-unbiased": on_checks.z_unbiased,
        "determinant-order": on_checks.determinant_order,
        "continuing-is-free": on_checks.continuing_is_free,
        "ess-stopping": on_checks.stopping,
    },
)
