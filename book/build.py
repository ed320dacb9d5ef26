"""Build the book: run the notebooks where needed, write the claims tables, call Jupyter Book.

Run it through ``make book``. The exit status is non-zero when a notebook cell fails or when
Jupyter Book gives any warning.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

import yaml
from bookparts import api, fragments, landing, numbered
from bookparts.address import read_address
from examples import demo_still, draw, guide

from steinis_lib.companion import claims, claims_page, fairness_page, stability
from steinis_lib.companion.notebooks import run_notebook
from steinis_lib.companion.registry import SECTIONS

BOOK = Path(__file__).resolve().parent
ROOT = BOOK.parent
EXECUTED = BOOK / "sections"
GENERATED = BOOK / "_generated"
BEFORE = ("foundations", "method", "demo")
AFTER = (
    "guide", "claims", "readings", "fairness", "verification", "choices", "reproduce", "clusters",
    "benchmarks", "errata", "api", "cite", "glossary", "references",
)  # fmt: skip
"""The pages before and after the sections."""


def table_of_contents() -> dict[str, object]:
    """The book's pages in order, as Jupyter Book wants them; sections come from their registry."""
    sections = [f"{EXECUTED.name}/{section.notebook}" for section in SECTIONS.values()]
    chapters: list[dict[str, object]] = [{"file": page} for page in (*BEFORE, *sections, *AFTER)]
    below = {"api": api.pages(), "guide": guide.PAGES[1:]}
    for chapter in chapters:
        if pages := below.get(str(chapter["file"])):
            chapter["sections"] = [{"file": page} for page in pages]
    return {"format": "jb-book", "root": "index", "chapters": chapters}


def newest(paths: list[Path]) -> float:
    """The latest time at which any of the existing paths was changed."""
    return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)


def inputs_of(notebook: Path) -> list[Path]:
    """All files that the executed notebook depends on, and the folders of results."""
    results = ROOT / "data" / "results"
    return [
        notebook,
        *(ROOT / "steinis_lib").rglob("*.py"),
        *(ROOT / "data" / "claims").glob("*.yaml"),
        results,
        *results.rglob("*"),
    ]


def is_fresh(output: Path, note: Path, inputs: list[Path], profile: str) -> bool:
    """Whether an executed notebook can be used again: same profile, no newer input, its files."""
    if not (output.is_file() and note.is_file() and (numbered.FILES / output.stem).is_dir()):
        return False
    same_profile = json.loads(note.read_text(encoding="utf-8")) == {"profile": profile}
    return same_profile and output.stat().st_mtime > newest(inputs)


def run_notebooks(profile: str) -> list[str]:
    """Execute every section's notebook that is not fresh into ``book/sections``.

    Returns
    -------
    list of str
        What failed, a text for each notebook with an error.
    """
    EXECUTED.mkdir(exist_ok=True)
    GENERATED.mkdir(exist_ok=True)
    expected, stale = set(), []
    for name, section in SECTIONS.items():
        output = EXECUTED / f"{section.notebook}.ipynb"
        note = output.with_suffix(".json")  # how the output was made
        expected |= {output, note}
        if is_fresh(output, note, inputs_of(section.notebook_path), profile):
            print(f"{name}: up to date", flush=True)
        else:
            note.unlink(missing_ok=True)
            stale.append(name)
    for left_over in set(EXECUTED.iterdir()) - expected:
        if left_over.is_file():
            left_over.unlink()
    if not stale:
        return []
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a core for each process, not all for all
    n_processes = min(len(stale), os.cpu_count() or 1)
    with ProcessPoolExecutor(n_processes, mp_context=get_context("spawn")) as pool:
        outcomes = pool.map(execute, stale, repeat(profile))
        pool.submit(guide.write_outputs, GENERATED).result()  # `write_fragments` finds it done
        return [failure for failure in outcomes if failure]


def execute(name: str, profile: str) -> str:
    """Execute one section's notebook; return what failed, or an empty text."""
    from papermill import PapermillExecutionError

    print(f"{name}: running at the {profile} profile", flush=True)
    notebook = SECTIONS[name].notebook
    output, figures = EXECUTED / f"{notebook}.ipynb", numbered.FILES / notebook
    shutil.rmtree(figures, ignore_errors=True)
    figures.mkdir(parents=True)
    try:
        run_notebook(name, output, profile=profile, figures=figures)
    except PapermillExecutionError as error:  # it cannot be sent to another process as it is
        return f"{name}: {error}"
    output.with_suffix(".json").write_text(json.dumps({"profile": profile}), encoding="utf-8")
    return ""


def write_fragments() -> None:
    """Write the tables and figures that pages include."""
    tables = ROOT / "benchmarks" / "tables.py"
    subprocess.run([sys.executable, tables, "--folder", GENERATED], check=True)
    ledger = claims.ledger()
    findings = claims.evaluate(ledger)
    texts = {
        "landing.md": landing.fragment(findings),
        "claims_by_verdict.md": claims_page.claims_by_verdict(findings),
        "claims_by_section.md": claims_page.claims_by_section(findings),
        "readings.md": claims_page.readings_blocks(findings),
        "error_rates.md": fairness_page.error_rates_table(ledger),
        "tuning_table.md": fairness_page.tuning_tables(),
        "stability_table.md": stability.markdown_table(),
        "costs.md": fragments.costs(),
        "cite.md": fragments.citations(fragments.read_citation(), read_address()),
        "demo_still.md": demo_still.fragment(),
    }
    for file_name, text in texts.items():
        (GENERATED / file_name).write_text(text, encoding="utf-8")
    api.write_pages(BOOK, GENERATED)
    draw.draw_if_needed(GENERATED)
    guide.write_outputs(GENERATED)


def write_picture() -> None:
    """Write the README's picture: the KL figure of Section 1, in fixed colours on white."""
    notebook = json.loads((EXECUTED / "01_gmm_convergence.ipynb").read_text(encoding="utf-8"))
    pages = (
        "".join(output.get("data", {}).get("text/html", ""))
        for cell in notebook["cells"]
        for output in cell.get("outputs", [])
    )
    svg = next(page for page in pages if 'aria-label="KL against time' in page)
    svg = svg[svg.index("<svg") : svg.rindex("</svg>") + len("</svg>")] + "\n"
    svg = svg.replace("currentColor", "#1a1a1a").replace('style="', 'style="background:white;', 1)
    (BOOK / "images").mkdir(exist_ok=True)
    (BOOK / "images" / "kl-decay.svg").write_text(svg, encoding="utf-8")


def build_html() -> int:
    """Build all pages anew and return the exit status of Jupyter Book.

    A full build takes seconds, and an incremental one would not repeat the warnings of
    pages that it does not read again.
    """
    shutil.rmtree(BOOK / "_build", ignore_errors=True)
    contents = GENERATED / "toc.yml"
    contents.write_text(yaml.safe_dump(table_of_contents(), sort_keys=False), encoding="utf-8")
    program = str(Path(sys.executable).with_name("jupyter-book"))
    options = ["--all", "--warningiserror", "--keep-going", "--nitpick", "--quiet"]
    command = [program, "build", str(BOOK), "--toc", str(contents), *options]
    found = os.pathsep.join(filter(None, (str(BOOK), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": found}  # for the extension `bookparts.site`
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main() -> int:
    """Parse the command line, build, and say where the book is."""
    parser = argparse.ArgumentParser(description="Build the book.")
    parser.add_argument("--profile", choices=["paper", "quick"], default="paper")
    arguments = parser.parse_args()
    try:
        stability.need_measured()
        read_address()
    except (FileNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    if failures := run_notebooks(arguments.profile):
        print("\n".join(failures), file=sys.stderr)
        return 1
    write_fragments()
    if arguments.profile == "paper":
        write_picture()
    status = build_html()
    if status:
        print("The book was not built cleanly: see the messages above.", file=sys.stderr)
        return status
    print(f"The book is at {BOOK / '_build' / 'html' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
