"""Verification of stored results agrees with the library as it is, on other processors too.

The chunks are those that show mutants in `test_verification_mutants`.
"""

import platform

import mutants
import pytest
from mutants import MUTANTS, copy_library, processes

pytestmark = pytest.mark.slow
PATIENCE = 600  # seconds, for all chunks

INSTRUCTION_SETS = {
    "of this machine": {},
    "AVX2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "none": {
        "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_the_right_library_agrees_whatever_the_instruction_set(name, monkeypatch, tmp_path):
    for variable, value in INSTRUCTION_SETS[name].items():
        monkeypatch.setenv(variable, value)
    jobs = list(dict.fromkeys(mutant.job for mutant in MUTANTS))
    with processes("spawn") as executor:
        found = executor.submit(mutants.problems, copy_library(tmp_path), jobs).result(PATIENCE)
        used = executor.submit(mutants.capability).result(PATIENCE)
    assert {job: lines for job, lines in zip(jobs, found, strict=True) if lines} == {}
    asked = INSTRUCTION_SETS[name].get("ATEN_CPU_CAPABILITY")
    if asked and platform.machine() == "x86_64":
        assert used == asked.upper()
