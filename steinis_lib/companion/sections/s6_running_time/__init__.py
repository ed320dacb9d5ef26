"""Section 6: running time (Table 1), and how the cost of a transition grows."""

from functools import partial

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s6_running_time import statistics
from steinis_lib.companion.sections.s6_running_time.experiment import EXPERIMENT

SECTION = Section(
    title="Running time",
    notebook="06_running_time",
    experiments=(EXPERIMENT,),
    statistics={
        "vae-hais-ten-slower": statistics.ten_to_steinis,
        **{
            f"time-{claim}-{dim}": partial(statistics.ratio, ours=method, theirs="hais-1l", dim=dim)
            for claim, method in (("steinis", "steinis"), ("hais-ten", "hais-10l"), ("ais", "ais"))
            for dim in (10, 20, 50)
        },
        "cost-formula": statistics.cost_formula,
    },
)
