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
        "rbm-across-d": statistics.steinis_to_hais_across_d,
        "rbm-ais-steinis": statistics.ais_to_steinis,
        "rbm-ais-hais": statistics.ais_to_hais,
    },
)
