"""Section 8: SteinIS with a pool of leaders, on all of the paper's problems."""

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s8_pooled import ends
from steinis_lib.companion.sections.s8_pooled.experiment import EXPERIMENT
from steinis_lib.companion.sections.s8_pooled.third_column_statistics import WITH_POOL

SECTION = Section(
    title="What SteinIS needs",
    notebook="08_pooled",
    experiments=(EXPERIMENT, ends.EXPERIMENT),
    with_pool=WITH_POOL,
)
