"""Section 6: running time (Table 1), and how the cost of a transition grows."""

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s6_running_time import statistics
from steinis_lib.companion.sections.s6_running_time.experiment import EXPERIMENT

SECTION = Section(
    title="Running time",
    notebook="06_running_time",
    experiments=(EXPERIMENT,),
    statistics={
        "time-table": statistics.time_table,
        "time-comparable": statistics.time_comparable,
        "vae-hais-ten-slower": statistics.ten_to_steinis,
        "cost-formula": statistics.cost_formula,
    },
)
