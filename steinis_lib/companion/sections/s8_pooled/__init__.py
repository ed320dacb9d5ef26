"""Section 8: SteinIS with a pool of leaders, on all of the paper's problems."""

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s8_pooled.experiment import EXPERIMENT

SECTION = Section(title="What it takes", notebook="08_pooled", experiments=(EXPERIMENT,))
