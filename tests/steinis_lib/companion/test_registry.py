"""Sections are found by their folders, and fit together with notebooks, book and claims."""

import importlib.util

import nbformat
import papermill
import pytest

from steinis_lib.companion import claims
from steinis_lib.companion.checkout import ROOT
from steinis_lib.companion.notebooks import parameters_cell
from steinis_lib.companion.registry import EXPERIMENTS, SECTIONS, STATISTICS, WITH_POOL


def test_every_folder_is_a_section_and_every_section_has_a_notebook_of_its_own():
    folders = (ROOT / "steinis_lib" / "companion" / "sections").glob("*/__init__.py")
    assert len(SECTIONS) == len(list(folders)) >= 8
    notebooks = {section.notebook_path for section in SECTIONS.values()}
    assert notebooks == set((ROOT / "notebooks").glob("**/*.ipynb"))
    assert [s.notebook for s in SECTIONS.values()] == sorted(s.notebook for s in SECTIONS.values())


def test_no_two_sections_share_an_experiment_or_a_claim():
    sections = SECTIONS.values()
    assert len(EXPERIMENTS) == sum(len(section.experiments) for section in sections)
    assert len(STATISTICS) == sum(len(section.statistics) for section in sections)


def test_a_sections_statistics_are_of_its_own_experiments():
    experiment_of = {claim.id: claim.experiment for claim in claims.ledger()}
    for section in SECTIONS.values():
        own = {experiment.name for experiment in section.experiments}
        assert {experiment_of[claim] for claim in section.statistics} <= own, section.name


def test_claims_that_are_judged_with_a_pool_are_in_the_ledger_and_of_another_section():
    known = {claim.id for claim in claims.ledger()}
    for section in SECTIONS.values():
        assert set(section.with_pool) <= known - set(section.statistics), section.name
    assert len(WITH_POOL) == sum(len(section.with_pool) for section in SECTIONS.values())


@pytest.mark.parametrize("name", SECTIONS)
def test_the_page_begins_with_the_sections_title_and_all_its_parameters(name):
    section = SECTIONS[name]
    notebook = nbformat.read(section.notebook_path, as_version=4)
    setup, first = notebook.cells[:2]  # the setup is not shown in the book
    assert setup.metadata["tags"] == ["remove-cell"]
    assert first.cell_type == "markdown"
    assert first.source.splitlines()[0].endswith(section.title)
    (cell,) = (c for c in notebook.cells if "parameters" in c.metadata.get("tags", []))
    assert cell.source == parameters_cell(section.experiments[0].parameters)


@pytest.mark.parametrize("name", SECTIONS)
def test_papermill_understands_the_parameters_cell(name, caplog):
    """It warns of parameters that it does not find there, such as those after a second "="."""
    found = papermill.inspect_notebook(SECTIONS[name].notebook_path)
    fields = SECTIONS[name].experiments[0].parameters.model_fields
    assert {n: p["help"] for n, p in found.items()} == {n: i.description for n, i in fields.items()}
    assert caplog.text == ""


def test_the_book_has_every_page_and_every_section_in_order():
    spec = importlib.util.spec_from_file_location("build", ROOT / "book" / "build.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    contents = build.table_of_contents()
    files = [chapter["file"] for chapter in contents["chapters"]]
    assert [f for f in files if f.startswith("sections/")] == [
        f"sections/{section.notebook}" for section in SECTIONS.values()
    ]
    pages = {path.stem for path in (ROOT / "book").glob("*.md")}
    assert {contents["root"], *(f for f in files if "/" not in f)} == pages
