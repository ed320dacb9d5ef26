"""The built pages of sections: numbered figures and tables, downloads, conditions, letters."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pandas as pd
import pypdf
import pytest
from browsing import HTML, PAGES, need_book, serving

from steinis_lib.companion.checkout import ROOT

pytestmark = pytest.mark.slow
need_book(module=True)

SECTIONS = [page for page in PAGES if page.startswith("sections/")]
ELEMENT = re.compile(
    r'<figure class="steinis-(figure|table)" id="\1-(\d+)-(\d+)".*?</figure>', re.S
)
LETTERS = 9
"""No word of a figure is smaller than so many pixels."""

# Each figure's smallest letters, in pixels of the screen, unless its box scrolls and says so.
SMALL = """
() => [...document.querySelectorAll("figure.steinis-figure")].map((figure) => {
  const box = figure.querySelector(".numbered-box");
  const picture = figure.querySelector("svg");
  const hint = figure.querySelector(".scroll-hint");
  return {
    id: figure.id,
    scrolls: box.scrollWidth > box.clientWidth + 1,
    hint: hint ? hint.getBoundingClientRect().height > 4 : false,
    reachable: box.tabIndex === 0 && box.getAttribute("role") === "region",
    least: parseFloat(getComputedStyle(figure).getPropertyValue("--least")) || 0,
    width: picture ? picture.getBoundingClientRect().width : null,
  };
})
"""


def page_text(page: str) -> str:
    return (HTML / page).read_text("utf-8")


def words(html: str) -> str:
    return unescape(re.sub(r"<svg.*?</svg>|<[^>]*>", " ", html, flags=re.S))


def elements(page: str, kind: str) -> dict[str, str]:
    """The figures or the tables of a page: number → HTML."""
    found = ELEMENT.finditer(page_text(page))
    return {f"{m[2]}.{m[3]}": m[0] for m in found if m[1] == kind}


def numbers_in(text: str, kind: str) -> set[str]:
    """The numbers that a text mentions, also as "Figures 5.3 and 5.4" and "Figures 5.5 to 5.7"."""
    found = set(re.findall(rf"\b{kind}s? (\d+\.\d+)", text))
    for section, first, last in re.findall(rf"\b{kind}s (\d+)\.(\d+) (?:and|to) \1\.(\d+)", text):
        found |= {f"{section}.{n}" for n in range(int(first), int(last) + 1)}
    return found


@pytest.fixture(scope="module")
def site() -> Any:
    with serving(HTML) as server:
        yield server.address


@pytest.mark.parametrize("kind", ["figure", "table"])
@pytest.mark.parametrize("page", SECTIONS)
def test_figures_and_tables_are_numbered_in_order_and_have_captions(page: str, kind: str) -> None:
    found = elements(page, kind)
    section = int(Path(page).name[:2])
    assert list(found) == [f"{section}.{n}" for n in range(1, len(found) + 1)]
    assert len(found) >= 3
    for number, html in found.items():
        (caption,) = re.findall(r"<figcaption>(.*?)</figcaption>", html, re.S)
        text = " ".join(words(caption).split())
        assert text.startswith(f"{kind.capitalize()} {number}. ")
        assert len(text) > 40 and text.endswith("."), text
        assert not re.search(r"\bnan\b|\binf\b|[{}$]", text), text


@pytest.mark.parametrize("page", SECTIONS)
def test_nothing_is_shown_without_a_number(page: str) -> None:
    article = re.search(r"<article.*?</article>", page_text(page), re.S)
    assert article is not None
    rest = ELEMENT.sub("", article[0])
    assert '<div class="steinis-figure"' not in rest
    tables = re.findall(r'<table id="T_(?!unnumbered)', rest)
    assert tables == []


@pytest.mark.parametrize("page", SECTIONS)
def test_every_figure_and_table_is_referred_to_and_every_number_exists(page: str) -> None:
    text = page_text(page)
    article = re.search(r"<article.*?</article>", text, re.S)
    assert article is not None
    rest = words(ELEMENT.sub("", article[0]))
    known = {
        f"{kind.capitalize()} {number}"
        for kind in ("figure", "table")
        for other in SECTIONS
        for number in elements(other, kind)
    }
    mentioned = set(re.findall(r"\b(?:Figure|Table) \d+\.\d+", rest))
    assert mentioned <= known
    for kind in ("figure", "table"):
        own = set(elements(page, kind)) - {
            f"{int(Path(page).name[:2])}.2" if kind == "table" else ""
        }
        assert own <= numbers_in(rest, kind.capitalize())
    for first, last in re.findall(r"Figures (\d+\.\d+) (?:and|to) (\d+\.\d+)", rest):
        assert {f"Figure {first}", f"Figure {last}"} <= known
    links = re.findall(r'href="#((?:figure|table)-\d+-\d+)"', text)
    assert set(links) >= {
        name.replace(" ", "-").replace(".", "-").lower()
        for name in mentioned
        if name.split()[1].split(".")[0] == str(int(Path(page).name[:2]))
    }


@pytest.mark.parametrize("page", SECTIONS)
def test_each_figure_has_files_that_can_be_read(page: str) -> None:
    for number, html in elements(page, "figure").items():
        links = re.findall(r'<a href="([^"]+)" download>', html)
        assert [Path(link).suffix for link in links] == [".csv", ".svg", ".pdf"], number
        files = [(HTML / page).parent / link for link in links]
        data = pd.read_csv(files[0], comment="#")
        assert len(data) >= 1 and len(data.columns) >= 3, number
        assert f"# Figure {number}. " in files[0].read_text("utf-8")
        assert ET.parse(files[1]).getroot().tag == "{http://www.w3.org/2000/svg}svg"
        assert files[2].read_bytes().startswith(b"%PDF")
        assert len(pypdf.PdfReader(files[2]).pages) == 1


@pytest.mark.parametrize("page", SECTIONS)
def test_the_verdicts_come_first_and_what_was_used_comes_next(page: str) -> None:
    number = int(Path(page).name[:2])
    tables, text = elements(page, "table"), page_text(page)
    first, second = (words(tables[f"{number}.{n}"]) for n in (1, 2))
    assert re.search(r"verdicts|bars", first)
    assert re.search(r"profile\s+paper\s", second)
    assert re.search(r"computing time\s+[\d.]+ (s|min|h) on one core", second)
    assert re.search(r"memory\s+up to [\d,]+ MB for a worker", second)
    begins = [
        text.index(f'id="{name}-{number}-{n}"')
        for name, n in (("table", 1), ("table", 2), ("figure", 1))
    ]
    assert begins == sorted(begins)
    assert re.search(r"steinis run [\w-]+ --profile paper", words(text))
    assert re.search(r"papermill notebooks/\d\d_\w+\.ipynb", words(text))


@pytest.mark.parametrize("page", SECTIONS)
def test_no_other_profile_is_seen_above_the_results(browser: Any, site: str, page: str) -> None:
    opened = browser.new_page()
    opened.goto(f"{site}/{page}")
    seen = opened.evaluate("document.querySelector('article').innerText")
    opened.close()
    assert 'profile = "quick"' not in seen
    assert 'profile = "paper"' not in seen


@pytest.mark.parametrize("page", SECTIONS)
@pytest.mark.parametrize("width", [360, 768, 1280])
def test_letters_of_figures_can_be_read(browser: Any, site: str, page: str, width: int) -> None:
    opened = browser.new_page(viewport={"width": width, "height": 800})
    opened.goto(f"{site}/{page}")
    figures = opened.evaluate(SMALL)
    opened.close()
    assert len(figures) == len(elements(page, "figure"))
    for figure in figures:
        assert figure["reachable"], figure
        if figure["width"] is None:  # an animation, folded
            continue
        assert figure["least"] > 0 and figure["width"] >= figure["least"] - 1, figure
        assert figure["hint"] == figure["scrolls"], figure


@pytest.mark.parametrize("page", SECTIONS)
def test_the_executed_notebook_names_no_folder_of_the_machine_that_ran_it(page: str) -> None:
    text = (HTML / "_sources" / page).with_suffix(".ipynb").read_text("utf-8")
    assert str(ROOT) not in text
    assert '"papermill"' not in text
    assert not re.search(r'"(?:/home|/Users|/root|/tmp|/work)/', text)


@pytest.mark.parametrize("page", SECTIONS)
def test_long_tables_are_folded(page: str) -> None:
    for number, html in elements(page, "table").items():
        if number.split(".")[1] in "12":  # verdicts and conditions, which everyone should see
            assert "<details>" not in html
            continue
        n_rows = html.count("<tr>") - html.count("<thead>")
        assert ("<details>" in html) == (n_rows > 12), number


def test_files_are_the_same_from_a_file_as_from_a_server(browser: Any) -> None:
    """Links are relative, so that the book works where it lies."""
    opened = browser.new_page()
    opened.goto((HTML / SECTIONS[0]).as_uri())
    links = opened.evaluate("[...document.querySelectorAll('.downloads a')].map((a) => a.href)")
    opened.close()
    assert links
    folder: Callable[[str], str] = lambda link: link.rpartition("/")[0]  # noqa: E731
    assert {folder(link) for link in links} == {(HTML / "figures").as_uri()}
