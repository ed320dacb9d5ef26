"""Make one PDF of the whole built book: ``make pdf``.

All pages are put into one, with contents, and figures that have no caption get one with a number.
Chromium prints it twice: the first time shows on which page each heading is.
"""

from __future__ import annotations

import functools
import http.server
import io
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape, unescape
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any
from urllib.parse import urldefrag, urlsplit

import yaml
from bookparts.address import read_address
from playwright.sync_api import sync_playwright
from pypdf import PdfReader, PdfWriter

from steinis_lib.core.files import replacing

BOOK = Path(__file__).resolve().parent
HTML = BOOK / "_build" / "html"
OUTPUT = BOOK / "_build" / "steinis-companion.pdf"
FOOTER = (
    '<div style="width: 100%; font-size: 8px; text-align: center;">'
    '<span class="pageNumber"></span></div>'
)

FILL_IN = """(numbers) => {
  for (const place of document.querySelectorAll("[data-page-of]")) {
    place.textContent = numbers[place.dataset.pageOf];
  }
}"""
PREPARE = (BOOK / "print.js").read_text("utf-8")
"""What the page does to itself before it is printed: captions, and nothing wider than the paper."""


def page_names(contents: Path = BOOK / "_generated" / "toc.yml") -> list[str]:
    """Return the book's pages in order, from its table of contents."""
    toc = yaml.safe_load(contents.read_text("utf-8"))
    names = [toc["root"]]
    for chapter in toc["chapters"]:
        names += [chapter["file"], *(section["file"] for section in chapter.get("sections", []))]
    return names


def article(html: str) -> str:
    """Return the part of a page that is its text."""
    found = re.search(r'<article class="bd-article"[^>]*>(.*?)</article>', html, re.DOTALL)
    if found is None:
        raise ValueError("a page of the book has no article: the theme's layout has changed")
    return re.sub(r"<noscript>.*?</noscript>|<script\b.*?</script>", "", found[1], flags=re.DOTALL)


def prefix(page: str) -> str:
    """Return what the ids of a page begin with in the whole book."""
    return page.replace("/", "-") + "--"


def merged(html: str, page: str, pages: list[str], site: str = "") -> str:
    """Return a page's text with ids of its own, and links that lead to other pages' texts.

    Links to files of the book that are not among the pages lead to the published book, if there is
    one, and are otherwise taken away.
    """
    own = prefix(page)
    html = re.sub(r'(?<=\sid=")([^"]+)(?=")', rf"{own}\1", html)
    html = re.sub(r"(?<=url\(#)([^)]+)(?=\))", rf"{own}\1", html)
    html = re.sub(
        r'(?<=\s)(aria-labelledby|aria-describedby|for)="([^"]+)"',
        lambda m: f'{m[1]}="{" ".join(own + name for name in m[2].split())}"',
        html,
    )
    html = re.sub(
        r'(?<=\s)((?:xlink:)?href)="([^"]*)"',
        lambda m: _link(m[1], unescape(m[2]), page, pages, site),
        html,
    )
    return re.sub(r'(?<=\ssrc=")(?![a-z]+:|//)([^"]+)', lambda m: _inside(m[1], page), html)


def headings(articles: dict[str, str]) -> list[tuple[str, int, str]]:
    """Return target, level and HTML of each page's title and of the headings below it."""
    heading = r'<section[^>]*\sid="([^"]+)"[^>]*>(?:\s*<span[^>]*></span>)*\s*<h([12])>(.*?)</h\2>'
    found = []
    for html in articles.values():
        for target, level, title in re.findall(heading, html, re.DOTALL):
            plain = re.sub(r'<a class="headerlink".*?</a>', "", title, flags=re.DOTALL)
            found.append((target, int(level), re.sub(r"</?a\b[^>]*>", "", plain)))
    return found


def contents(articles: dict[str, str]) -> str:
    """Return the table of contents: titles and headings, with room for their page numbers."""
    rows = (
        f'<li class="contents-{level}"><a href="#{target}"><span>{title}</span>'
        f'<span data-page-of="{target}"></span></a></li>'
        for target, level, title in headings(articles)
    )
    return f'<nav class="book-contents"><h1>Contents</h1><ul>{"".join(rows)}</ul></nav>'


def add_outline(writer: PdfWriter, articles: dict[str, str], numbers: dict[str, int]) -> None:
    """Give a PDF the outline that a reader shows beside its pages.

    That of Chromium loses blanks where a heading is broken into lines.
    """
    parent = None
    for target, level, title in headings(articles):
        plain = re.sub(r"\\[()]|\\", "", unescape(re.sub("<[^>]*>", "", title)))
        above = parent if level > 1 else None
        item = writer.add_outline_item(title=plain, page_number=numbers[target] - 1, parent=above)
        parent = item if level == 1 else parent


def read_articles(pages: list[str], site: str = "") -> dict[str, str]:
    """Return the text of each page of the built book, as a part of the whole one."""
    return {
        page: merged(article((HTML / f"{page}.html").read_text("utf-8")), page, pages, site)
        for page in pages
    }


def whole_page(articles: dict[str, str]) -> str:
    """Return the HTML of the whole book as one page."""
    first = (HTML / f"{next(iter(articles))}.html").read_text("utf-8")
    head = first[: first.index("</head>")]
    config = yaml.safe_load((BOOK / "_config.yml").read_text("utf-8"))
    title, author = escape(config["title"]), escape(config["author"])
    body = "".join(
        f'<article class="bd-article book-page" id="{prefix(page)}">{html}</article>'
        for page, html in articles.items()
    )
    return (
        f'{head}<link rel="stylesheet" href="_static/print.css" media="all" /></head>'
        '<body data-default-mode="light"><main class="bd-content whole-book">'
        f'<header class="book-title"><h1>{title}</h1><p>{author}</p><p>This is the book as one '
        "document. The code that its pages fold away is left out.</p></header>"
        f"{contents(articles)}{body}</main></body></html>"
    )


def page_numbers(reader: PdfReader) -> dict[str, int]:
    """Return on which page of a PDF each target of a link is."""
    found = {}
    for name, destination in reader.named_destinations.items():
        number = reader.get_destination_page_number(destination)
        if number is not None:
            found[name.lstrip("/")] = number + 1
    return found


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a free port of this computer, and give its address."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def make(output: Path, browser: Any, pages: list[str], site: str = "") -> list[str]:
    """Write the PDF, and return what is wider than its page, as far as anything is."""
    articles = read_articles(pages, site)
    with served(HTML) as address:
        url = f"{address}/whole_book.html"  # which is there for this browser only
        page = browser.new_page(viewport={"width": 680, "height": 960}, color_scheme="light")
        page.add_init_script("localStorage.setItem('mode', 'light')")
        page.emulate_media(media="print")
        html = whole_page(articles)
        page.route(url, lambda route: route.fulfill(body=html, content_type="text/html"))
        page.goto(url, wait_until="load")
        page.wait_for_function(
            "() => window.MathJax?.startup?.promise?.then(() => true)", timeout=120_000
        )
        wide: list[str] = page.evaluate(PREPARE)
        numbers = page_numbers(PdfReader(io.BytesIO(_printed(page))))
        page.evaluate(FILL_IN, numbers)
        pdf = _printed(page)
        page.close()
    writer = PdfWriter(clone_from=io.BytesIO(pdf))
    add_outline(writer, articles, numbers)
    with replacing(output) as scratch:
        writer.write(scratch)
    return wide


def find_chromium() -> str | None:
    """Return the program on the path that can print and show pages, if there is one."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def main() -> int:
    """Print the book, and say where it is."""
    chromium = find_chromium()
    if not (HTML / "index.html").is_file():
        print("The book is not built: run `make book` first.", file=sys.stderr)
        return 1
    if chromium is None:
        print("Chromium makes the PDF, and is not on the path: install it.", file=sys.stderr)
        return 1
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        wide = make(OUTPUT, browser, page_names(), read_address().site)
        browser.close()
    if wide:
        print("Wider than the paper, so that a part is cut off:", *wide, sep="\n", file=sys.stderr)
        return 1
    print(f"{len(PdfReader(OUTPUT).pages)} pages are in {OUTPUT}")
    return 0


def _printed(page: Any) -> bytes:
    pdf: bytes = page.pdf(
        format="A4",
        margin={"top": "18mm", "bottom": "18mm", "left": "15mm", "right": "15mm"},
        display_header_footer=True,
        header_template="<span></span>",
        footer_template=FOOTER,
        tagged=True,
        print_background=True,
    )
    return pdf


def _link(name: str, href: str, page: str, pages: list[str], site: str) -> str:
    if urlsplit(href).scheme or href.startswith("//"):
        return f'{name}="{escape(href)}"'
    target, anchor = urldefrag(href)
    path = _inside(target, page) if target else f"{page}.html"
    linked = path.removesuffix(".html")
    if linked in pages:
        return f'{name}="#{prefix(linked)}{escape(anchor)}"'
    return f'{name}="{escape(site + path)}"' if site else "data-left-out"


def _inside(path: str, page: str) -> str:
    """A path of a page, relative to the folder of the whole book."""
    return normpath(join(dirname(page), path))


if __name__ == "__main__":
    sys.exit(main())
