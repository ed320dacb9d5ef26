"""The built book in its other forms: search, API reference, metadata, without scripts, as a PDF."""

import functools
import gzip
import http.server
import os
import re
import shutil
import threading
import unicodedata
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pdf
import pytest
from bookparts import api, icons, links
from bookparts.address import read_address

HTML = Path(__file__).resolve().parents[2] / "book" / "_build" / "html"
REQUIRED = os.environ.get("STEINIS_REQUIRE_BROWSER") == "1"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
PAGES = sorted(
    path.relative_to(HTML).as_posix()
    for path in HTML.rglob("*.html")
    if not path.relative_to(HTML).as_posix().startswith("_")
)
HEAVIEST = 1_500_000
PAPER = {"width": 680, "height": 960}

pytestmark = pytest.mark.slow
if not PAGES and not REQUIRED:
    pytest.skip("the book is not built: run `make book`", allow_module_level=True)


def text_of(page: str) -> str:
    return (HTML / page).read_text("utf-8")


class Compressed(http.server.SimpleHTTPRequestHandler):
    """A server that compresses text, as hosts do, and counts the bytes that it sends."""

    sent = 0
    packed = (".html", ".css", ".js", ".svg", ".json")

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        body = path.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        if path.suffix in self.packed:
            body = gzip.compress(body, 6)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        type(self).sent += len(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    handler = functools.partial(Compressed, directory=str(HTML))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        (pytest.fail if REQUIRED else pytest.skip)("no Chromium on the path")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


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


@pytest.mark.parametrize("page", [page for page in PAGES if page != "404.html"])
def test_a_page_is_light_and_writes_no_error(browser: Any, site: str, page: str) -> None:
    errors: list[str] = []
    context = browser.new_context()  # with an empty cache, and no choice of light or dark mode
    opened = context.new_page()
    opened.on("console", lambda message: message.type == "error" and errors.append(message.text))
    opened.on("pageerror", lambda error: errors.append(str(error)))
    Compressed.sent = 0
    opened.goto(f"{site}/{page}", wait_until="networkidle")
    context.close()
    assert errors == []
    assert 0 < Compressed.sent <= HEAVIEST


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
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The whole book as a PDF, and what is wider than its paper."""
    if CHROMIUM is None:
        (pytest.fail if REQUIRED else pytest.skip)("no Chromium on the path")
    path = tmp_path_factory.mktemp("pdf") / "book.pdf"
    return path, pdf.make(path, CHROMIUM, pdf.page_names())


def squeezed(text: str) -> str:
    return re.sub(r"\W+", "", unicodedata.normalize("NFKC", text))  # without ligatures


def test_the_pdf_has_every_page_and_its_contents_name_the_right_ones(
    printed: tuple[Path, list[str]],
) -> None:
    from pypdf import PdfReader

    reader = PdfReader(printed[0])
    texts = [squeezed(page.extract_text()) for page in reader.pages]
    assert 60 < len(texts) < 400
    numbers = pdf.page_numbers(printed[0].read_bytes())
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


def test_the_links_of_the_pdf_lead_to_its_pages(printed: tuple[Path, list[str]]) -> None:
    from pypdf import PdfReader

    reader = PdfReader(printed[0])
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


def test_nothing_in_the_pdf_is_wider_than_its_paper(printed: tuple[Path, list[str]]) -> None:
    assert printed[1] == []


def test_figures_in_the_pdf_have_numbers(printed: tuple[Path, list[str]]) -> None:
    from pypdf import PdfReader

    text = "".join(page.extract_text() for page in PdfReader(printed[0]).pages)
    found = re.findall(r"Figure\s+([0-9A-Z]+\.\d+)\.", text)
    assert len(found) > 25
    assert len(set(found)) == len(found)
