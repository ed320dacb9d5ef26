"""Verification of stored results notices when the library is wrong.

That it agrees with the right library is in `test_verification_instruction_sets`.
"""

import re

import mutants
import pytest
from mutants import EXACT, MUTANTS, copy_library, processes

pytestmark = pytest.mark.slow
PATIENCE = 600  # seconds; a chunk takes a few


@pytest.fixture(scope="module")
def fresh():
    with processes("forkserver") as executor:
        yield executor


def problems(executor, folder, jobs, change=None):
    """The lines that verification prints for each chunk."""
    return executor.submit(mutants.problems, folder, jobs, change).result(PATIENCE)


def numbers_differ(lines):
    """Whether verification failed on numbers, or the library on numbers that are not finite."""
    errors = set(re.findall(r"\b\w*(?:Error|Exception)\b", "\n".join(lines)))
    return errors == {"FloatingPointError"} or (
        not errors and any("differ" in line for line in lines)
    )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_library_is_noticed(mutant, fresh, tmp_path):
    (lines,) = problems(fresh, copy_library(tmp_path, mutant), [mutant.job])
    assert numbers_differ(lines), lines


@pytest.mark.parametrize("change", [mutants.change_a_number, mutants.swap_two_trials])
def test_changed_results_are_noticed(change, fresh, tmp_path):
    (lines,) = problems(fresh, copy_library(tmp_path), [EXACT], change)
    assert numbers_differ(lines), lines


def test_an_edit_must_fit_its_file(tmp_path):
    mutant = mutants.Mutant("nonsense", EXACT, "steinis.py", "no such text", "")
    with pytest.raises(
        ValueError, match="nonsense: steinis.py has the text 'no such text' 0 times"
    ):
        copy_library(tmp_path, mutant)
