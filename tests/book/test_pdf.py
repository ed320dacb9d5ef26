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


def squeezed(text: str) -> str:
    return re.sub(r"\W+", "", unicodedata.normalize("NFKC", text))  # without ligatures


def test_the_pdf_has_every_page_and_its_contents_name_the_right_ones(
    printed: tuple[PdfReader, list[str]],
) -> None:
    reader = printed[0]
    texts = [squeezed(page.extract_text()) for page in reader.pages]
    assert 60 < len(texts) < 400
    numbers = pdf.page_numbers(reader)
    names = pdf.page_names()
    assert len(names) > 20
    contents = "".join(texts[: min(numbers.values()) - 1])
    for name in names:
        title = re.search(r"<h1>(.*?)<a class", pdf.article(text_of(f"{name}.html")), re.DOTALL)
        assert title is not None, name
        words = squeezed(unescape(re.sub("<[^>]*>", "", title[1])))
        first = min(n for t, n in numbers.items() if t.startswith(pdf.prefix(name)))
        assert words[:30] in texts[first - 1], name
        assert f"{words}{first}" in contents, name
    assert reader.outline


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
    text = "".join(page.extract_text() for page in printed[0].pages)
    found = re.findall(r"Figure\s+([0-9A-Z]+\.\d+)\.", text)
    assert len(found) > 25
    assert len(set(found)) == len(found)
