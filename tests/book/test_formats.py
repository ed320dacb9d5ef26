"""The built book in its other forms: search, API reference, metadata, without scripts."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from bookparts import api, icons, links
from bookparts.address import read_address
from browsing import HTML, PAGES, need_book, serving

pytestmark = pytest.mark.slow
need_book(module=True)


def text_of(page: str) -> str:
    return (HTML / page).read_text("utf-8")


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    with serving(HTML) as server:
        yield server.address


def test_every_public_name_is_in_the_api_reference() -> None:
    public = api.homes()
    assert len(public) > 50
    described = {
        name
        for page in api.pages()
        for name in re.findall(r'<dt class="sig[^>]* id="([^"]+)"', text_of(f"{page}.html"))
    }
    assert set(public.values()) - described == set()


def test_the_api_reference_has_types_and_links() -> None:
    page = text_of("api/steinis_lib.html")
    part = page[
        page.index('id="steinis_lib.SteinIS"') : page.index('id="steinis_lib.SteinISState"')
    ]
    assert re.search(r'href="[^"]*#steinis_lib\.StepSize"', part)
    assert re.search(r'href="[^"]*#steinis_lib\.Target"[^>]*>.{0,80}Target', part, re.DOTALL)
    assert "steinis_lib.SteinIS.run" in part  # from the class that all algorithms have
    words = unescape(re.sub("<[^>]*>", "", part))
    assert re.search(r"n_leaders\s*\(int\)", words)
    everything = unescape(re.sub("<[^>]*>", "", page))
    assert "log Z = 0: the density is normalised." in everything  # not "Type: log Z = 0"


@pytest.mark.parametrize("page", PAGES)
def test_a_page_describes_itself(page: str) -> None:
    head = text_of(page).partition("</head>")[0]
    (found,) = re.findall(r'<meta name="description" content="([^"]*)"', head)
    assert 0 < len(found) <= 250 and "\\" not in found
    assert 'property="og:title"' in head and 'property="og:description"' in head
    address = read_address()
    assert ('property="og:image"' in head) == bool(address.site)
    assert ('rel="canonical"' in head) == bool(address.site)


def test_sitemap_and_picture_are_there_where_the_book_has_an_address() -> None:
    published = bool(read_address().site)
    assert (HTML / "sitemap.xml").exists() == published
    assert (HTML / "_images" / "social.png").exists() == published


def test_there_is_a_page_for_what_does_not_exist() -> None:
    page = text_of("404.html")
    assert "This page does not exist" in page
    base = read_address().site
    assert f'href="{base}claims.html"' in page


def test_no_link_inside_the_book_is_broken() -> None:
    assert links.broken(HTML) == []


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="#x"><a href="#y"><a href="b.html">', "utf-8"
    )
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "d.html").write_text('<a href="../a.html#x"><a href="../../e">', "utf-8")
    found = links.broken(tmp_path)
    assert [line.partition(": ")[2] for line in found] == [
        "#y names no part of that page",
        "b.html names no file",
        "../../e leads out of the book",
    ]


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("sections/")])
def test_a_section_offers_its_executed_notebook_and_no_dead_button(page: str) -> None:
    row = re.search(r'<p class="launch.*?</p>', text_of(page), re.DOTALL)
    assert row is not None
    notebook = re.search(r'href="\.\./(_sources/[^"]+\.ipynb)" download', row[0])
    assert notebook is not None
    assert '"execution_count": 1' in (HTML / notebook[1]).read_text("utf-8")
    on_github = bool(read_address().on_github)
    assert ("mybinder.org" in row[0]) == on_github
    assert ("colab." in row[0]) == (on_github and read_address().in_notebooks)


@pytest.mark.parametrize("page", PAGES)
def test_formulas_can_be_read_without_scripts(page: str) -> None:
    html = text_of(page)
    n_formulas = len(re.findall(r'class="(?:amsmath )?math notranslate', html))
    found = re.findall(r"<noscript>(<math\b.*?</math>)</noscript>", html, re.DOTALL)
    assert len(found) == n_formulas
    for formula in found:
        words = unescape(re.sub("<[^>]*>", "", formula))
        assert not re.search(r"\\[a-zA-Z]+", words), f"a command was left as text: {words}"


def test_the_icons_are_drawn_without_the_large_script() -> None:
    style = (HTML / icons.STYLE).read_text("utf-8")
    assert not (HTML / icons.SCRIPT).exists()
    for page in PAGES:
        assert "fontawesome" not in text_of(page)
        assert [name for name in icons.used(text_of(page)) if f".{name} {{" not in style] == []


def test_an_icon_that_the_theme_lacks_is_named() -> None:
    with pytest.raises(ValueError, match="fa-nonsense"):
        icons.rule("fa-nonsense", 'a={"moon":[1,2,[],"f1","M0 0z"]}')


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("VAE", "sections/05_vae.html"),
        ("evidence", None),
        ("marginal likelihood", None),
        ("partition function", "sections/04_rbm.html"),
    ],
)
def test_the_search_finds(browser: Any, site: str, words: str, page: str | None) -> None:
    opened = browser.new_page()
    opened.goto(f"{site}/search.html?q={words.replace(' ', '+')}")
    opened.wait_for_selector("#search-results li a", timeout=20_000)
    first = opened.locator("#search-results li a").first.get_attribute("href")
    opened.close()
    assert first
    if page is not None:
        assert page in first
