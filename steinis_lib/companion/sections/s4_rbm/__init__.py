"""Section 4: log Z of restricted Boltzmann machines."""

from steinis_lib.companion.section import Section
from steinis_lib.companion.sections.s4_rbm import statistics
from steinis_lib.companion.sections.s4_rbm.experiment import EXPERIMENT

SECTION = Section(
    title="The partition function of an RBM",
    notebook="04_rbm",
    experiments=(EXPERIMENT,),
    statistics={
        "rbm-steinis-hais": statistics.steinis_to_hais,
        "rbm-ais-slower": statistics.ais_to_slower,
        "rbm-hais-ais": statistics.ais_to_hais,
    },
)
