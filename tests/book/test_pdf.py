"""The whole book as one PDF."""

import re
import unicodedata
from html import unescape
from typing import Any

import pdf
import pytest
from browsing import HTML, need_book
from pypdf import PdfReader

pytestmark = pytest.mark.slow


def text_of(page: str) -> str:
    return (HTML / page).read_text("utf-8")


def test_pages_are_put_together_with_links_that_work() -> None:
    html = (
        '<section id="top"><a href="../b.html#x">b</a><a href="#top">t</a><a href="c.zip">c</a>'
        '<a href="https://d/">d</a><svg aria-labelledby="top"><use xlink:href="#top"/>'
        '<g clip-path="url(#top)"/></svg><img src="../_images/i.png"></section>'
    )
    assert pdf.merged(html, "s/a", ["s/a", "b"]) == (
        '<section id="s-a--top"><a href="#b--x">b</a><a href="#s-a--top">t</a>'
        '<a data-left-out>c</a><a href="https://d/">d</a><svg aria-labelledby="s-a--top">'
        '<use xlink:href="#s-a--top"/><g clip-path="url(#s-a--top)"/></svg>'
        '<img src="_images/i.png"></section>'
    )
    assert 'href="https://site/s/c.zip"' in pdf.merged(html, "s/a", ["s/a", "b"], "https://site/")


@pytest.fixture(scope="module")
def printed(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[PdfReader, list[str]]:
    """The whole book as a PDF, and what is wider than its paper."""
    need_book()
    path = tmp_path_factory.mktemp("pdf") / "book.pdf"
    wide = pdf.make(path, browser, pdf.page_names())
    return PdfReader(path), wide


def first_page(numbers: dict[str, int], name: str) -> int:
    return min(n for target, n in numbers.items() if target.startswith(pdf.prefix(name)))


def words_of(reader: PdfReader, first: int, end: int) -> list[str]:
    """The text of pages without blanks, from one page number up to another."""
    return [squeezed(page.extract_text()) for page in reader.pages[first - 1 : end - 1]]


def squeezed(text: str) -> str:
    return re.sub(r"\W+", "", unicodedata.normalize("NFKC", text))  # without ligatures


def test_the_pdf_has_every_page_and_its_contents_name_the_right_ones(
    printed: tuple[PdfReader, list[str]],
) -> None:
    reader = printed[0]
    assert 60 < len(reader.pages) < 500
    numbers = pdf.page_numbers(reader)
    names = pdf.page_names()
    assert len(names) > 20
    contents = "".join(words_of(reader, 1, min(numbers.values())))
    for name in names:
        title = re.search(r"<h1>(.*?)<a class", pdf.article(text_of(f"{name}.html")), re.DOTALL)
        assert title is not None, name
        words = squeezed(unescape(re.sub("<[^>]*>", "", title[1])))
        first = first_page(numbers, name)
        assert words[:30] in words_of(reader, first, first + 1)[0], name
        assert f"{words}{first}" in contents, name
    titles = [item.title for item in reader.outline if not isinstance(item, list)]
    assert len(titles) == len(names)
    assert titles[0] == "A reproducible companion of SteinIS"


def test_the_links_of_the_pdf_lead_to_its_pages(printed: tuple[PdfReader, list[str]]) -> None:
    reader = printed[0]
    known = {name.lstrip("/") for name in reader.named_destinations}
    inside, unknown = 0, []
    for page in reader.pages:
        for annotation in page.get("/Annots") or []:
            link = annotation.get_object()
            target = link.get("/Dest") or (link.get("/A") or {}).get("/D")
            if isinstance(target, str):
                inside += 1
                if target.lstrip("/") not in known:
                    unknown.append(target)
    assert inside > 300
    assert unknown == []


def test_nothing_in_the_pdf_is_wider_than_its_paper(printed: tuple[PdfReader, list[str]]) -> None:
    assert printed[1] == []


def test_figures_in_the_pdf_have_numbers(printed: tuple[PdfReader, list[str]]) -> None:
    numbers = pdf.page_numbers(printed[0])
    names = pdf.page_names()
    section = next(i for i, name in enumerate(names) if name.startswith("sections/"))
    first, end = (first_page(numbers, name) for name in names[section : section + 2])
    pages = printed[0].pages[first - 1 : end - 1]
    found = re.findall(r"Figure\s+1\.(\d+)\.", "".join(page.extract_text() for page in pages))
    assert len(found) > 5
    assert found == [str(i + 1) for i in range(len(found))]
