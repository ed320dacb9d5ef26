"""Read every page of the built book in a browser: nothing from the network, nothing broken."""

import functools
import http.server
import os
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from bookparts.address import read_address

HTML = Path(__file__).resolve().parents[2] / "book" / "_build" / "html"
REQUIRED = os.environ.get("STEINIS_REQUIRE_BROWSER") == "1"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SITE = read_address().site
NOT_PAGES = {"genindex.html", "search.html"}
if SITE:
    NOT_PAGES.add("404.html")  # it loads everything from where the book is published
PAGES = sorted(
    path.relative_to(HTML).as_posix()
    for path in HTML.rglob("*.html")
    if path.name not in NOT_PAGES and not path.relative_to(HTML).as_posix().startswith("_")
)

pytestmark = pytest.mark.slow
if not PAGES and not REQUIRED:
    pytest.skip("the book is not built: run `make book`", allow_module_level=True)

# What a page says about itself once it has settled.
REPORT = r"""
() => {
  const main = document.querySelector("main") ?? document.body;
  const visible = main.cloneNode(true);
  visible.querySelectorAll("script, style, pre, code, mjx-container").forEach((e) => e.remove());
  const named = (e) =>
    e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") ||
    e.getAttribute("aria-hidden") === "true" || e.getAttribute("alt") ||
    (e.querySelector && e.querySelector(":scope > title"));
  const outside = (e) => !e.closest("mjx-container, [aria-hidden=true], button");
  const pictures = [...main.querySelectorAll("img, svg")].filter(outside);
  return {
    text: visible.textContent,
    untypeset: [...document.querySelectorAll(".math, .amsmath")]
      .filter((e) => !e.querySelector("mjx-container")).map((e) => e.textContent),
    // An unknown command is set in red, without an error node.
    mathErrors: [
      ...document.querySelectorAll("mjx-merror, [data-mjx-error], mjx-mtext[style*='red']"),
    ].map((e) => e.textContent || e.closest("mjx-container").textContent),
    unnamed: pictures.filter((e) => !named(e)).map((e) => e.outerHTML.slice(0, 200)),
    fileNamesAsAlt: pictures
      .filter((e) => /\.(png|gif|svg|jpe?g)$/.test(e.getAttribute("alt") ?? ""))
      .map((e) => e.getAttribute("alt")),
    brokenImages: [...document.images]
      .filter((e) => e.complete && e.naturalWidth === 0).map((e) => e.src),
    theme: document.documentElement.dataset.theme,
    links: [...document.querySelectorAll("a[href]")].map((e) => e.getAttribute("href")),
  };
}
"""

OVERFLOW = r"""
() => {
  const width = document.documentElement.clientWidth;
  const wide = Math.max(document.documentElement.scrollWidth, document.body.scrollWidth);
  return wide <= width + 1 ? "" : `${wide} px of content on a screen of ${width} px`;
}
"""

SETTLED = """
() => window.MathJax?.startup?.promise
  ? window.MathJax.startup.promise.then(() => true)
  : !document.querySelector(".math, .amsmath")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The built book, served on a free port and below a folder, as on a shared host."""
    root = tmp_path_factory.mktemp("host")
    (root / "companion").symlink_to(HTML, target_is_directory=True)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    handler = functools.partial(Handler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/companion"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One headless Chromium for all pages."""
    if CHROMIUM is None:
        (pytest.fail if REQUIRED else pytest.skip)("no Chromium on the path")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def open_page(browser: Any, site: str, page_name: str, mode: str, width: int) -> tuple[Any, list]:
    """Open a page and return it with the list of what went wrong while loading it."""
    context = browser.new_context(viewport={"width": width, "height": 900})
    context.add_init_script(
        f"localStorage.setItem('mode', '{mode}'); localStorage.setItem('theme', '{mode}');"
    )
    problems: list[str] = []
    page = context.new_page()

    def guard(route: Any) -> None:
        if route.request.url.startswith((site + "/", "data:", "blob:")):
            route.continue_()
        else:
            problems.append(f"request outside the book: {route.request.url}")
            route.abort()

    page.route("**/*", guard)
    page.on(
        "response",
        lambda response: (
            problems.append(f"status {response.status}: {response.url}")
            if response.status >= 400
            else None
        ),
    )
    page.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    page.on(
        "console",
        lambda message: (
            problems.append(f"console: {message.text}") if message.type == "error" else None
        ),
    )
    page.goto(f"{site}/{page_name}", wait_until="networkidle")
    page.wait_for_function(SETTLED, timeout=30_000)
    return page, problems


@functools.cache
def ids_of(path: Path) -> frozenset[str]:
    """All ids of an HTML file."""
    return frozenset(re.findall(r'\bid="([^"]+)"', path.read_text(encoding="utf-8")))


def broken_link(page_name: str, href: str) -> str | None:
    """Why a link of a page leads nowhere inside the book, or None."""
    if urlsplit(href).scheme or href.startswith("//"):
        return None
    target, anchor = urldefrag(href)
    target = unquote(urlsplit(target).path)
    path = (HTML / page_name).parent / target if target else HTML / page_name
    path = path / "index.html" if path.is_dir() else path
    if not path.resolve().is_relative_to(HTML):
        return f"{href}: outside the book"
    if not path.is_file():
        return f"{href}: no such file"
    if anchor and path.suffix == ".html" and unquote(anchor) not in ids_of(path):
        return f"{href}: no such anchor"
    return None


def test_the_book_is_there_when_it_is_required() -> None:
    if REQUIRED:
        assert PAGES, "the book is not built: run `make book`"
        assert CHROMIUM, "no Chromium on the path"


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("page_name", PAGES)
def test_page(browser: Any, site: str, page_name: str, mode: str) -> None:
    page, problems = open_page(browser, site, page_name, mode, width=1280)
    report = page.evaluate(REPORT)
    page.set_viewport_size({"width": 400, "height": 900})
    overflow = page.evaluate(OVERFLOW)
    page.context.close()

    assert problems == []
    assert report["theme"] == mode
    assert report["untypeset"] == []
    assert report["mathErrors"] == []
    raw_math = re.search(r".{0,40}(\$|\\[a-z]+).{0,40}", report["text"])
    assert raw_math is None, f"a formula was left as text: {raw_math}"
    assert report["unnamed"] == [], "pictures without a text alternative"
    assert report["fileNamesAsAlt"] == [], "pictures whose text alternative is a file name"
    assert report["brokenImages"] == []
    broken = [why for href in report["links"] if (why := broken_link(page_name, href))]
    assert broken == []
    assert overflow == ""


@pytest.mark.parametrize("page_name", PAGES)
def test_no_page_names_a_content_network(page_name: str) -> None:
    """Scripts, styles, fonts and pictures come from the book itself."""
    text = (HTML / page_name).read_text(encoding="utf-8")
    loaded = re.findall(r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="([^"]+)"', text)
    foreign = [url for url in loaded if re.match(r"(https?:)?//", url)]
    assert [url for url in foreign if not (SITE and url.startswith(SITE))] == []
    text = re.sub(r'<a class="launch-link".*?</a>', "", text)  # a link is followed, not loaded
    assert not re.search(r"unpkg|jsdelivr|cdnjs|googleapis|mybinder", text)
