"""Section 1: how fast the proposal approaches the target, and checks of Algorithm 1."""

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s1_convergence import algorithm_checks, experiment
from steinis_lib.companion.sections.s1_convergence import algorithm_checks_statistics as on_checks
from steinis_lib.companion.sections.s1_convergence import statistics as on_curves

SECTION = Section(
    title="Does the proposal approach the target?",
    notebook="01_gmm_convergence",
    experiments=(experiment.EXPERIMENT, algorithm_checks.EXPERIMENT),
    statistics={
        "kl-exponential-steinis": on_curves.kl_exponential_steinis,
        "kl-exponential-svgd": on_curves.kl_exponential_svgd,
        "ksd-exponential-steinis": on_curves.ksd_exponential_steinis,
        "ksd-exponential-svgd": on_curves.ksd_exponential_svgd,
        "kl-rate-is-ksd": on_curves.kl_rate_is_ksd,
        "kl-monotone-mean-field": on_curves.kl_monotone_mean_field,
        "kl-monotone-followers": on_curves.kl_monotone_followers,
        "z-unbiased": on_checks.z_unbiased,
        "determinant-order": on_checks.determinant_order,
        "continuing-is-free": on_checks.continuing_is_free,
        "ess-stopping": on_checks.stopping_coverage,
    },
)
