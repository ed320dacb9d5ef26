"""Section 7: beyond the paper. What makes the method fail, what mends it, and what does not."""

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s7_extensions.experiment import EXPERIMENT

SECTION = Section(title="Beyond the paper", notebook="07_beyond", experiments=(EXPERIMENT,))
