"""Read every page of the built book in a browser: nothing from the network, nothing broken."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from bookparts import links
from browsing import (
    CHROMIUM,
    HTML,
    OVERFLOW,
    PAGES,
    READ,
    REQUIRED,
    SETTLED,
    SITE,
    Server,
    need_book,
    open_page,
    serving,
)  # fmt: skip

DARK = ["index.html", "demo.html", "method.html", "sections/01_gmm_convergence.html"]
HEAVIEST = 1_500_000

pytestmark = pytest.mark.slow
need_book(module=True)

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


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The built book, served on a free port and below a folder, as on a shared host."""
    root = tmp_path_factory.mktemp("host")
    (root / "companion").symlink_to(HTML, target_is_directory=True)
    with serving(root) as server:
        yield server


def test_the_book_is_there_when_it_is_required() -> None:
    if REQUIRED:
        assert PAGES, "the book is not built: run `make book`"
        assert CHROMIUM, "no Chromium on the path"


@pytest.mark.parametrize(
    ("page_name", "mode"), [(page, None) for page in READ] + [(page, "dark") for page in DARK]
)
def test_page(browser: Any, host: Server, page_name: str, mode: str | None) -> None:
    site, host.sent = f"{host.address}/companion", 0
    page, problems = open_page(browser, f"{site}/{page_name}", site, mode)
    page.wait_for_function(SETTLED, timeout=30_000)
    report = page.evaluate(REPORT)
    page.set_viewport_size({"width": 400, "height": 900})
    overflow = page.evaluate(OVERFLOW)
    page.context.close()

    assert problems == []
    assert 0 < host.sent <= HEAVIEST
    assert report["theme"] == (mode or "light")
    assert report["untypeset"] == []
    assert report["mathErrors"] == []
    raw_math = re.search(r".{0,40}(\$|\\[a-z]+).{0,40}", report["text"])
    assert raw_math is None, f"a formula was left as text: {raw_math}"
    assert report["unnamed"] == [], "pictures without a text alternative"
    assert report["fileNamesAsAlt"] == [], "pictures whose text alternative is a file name"
    assert report["brokenImages"] == []
    dead = [links.problem(HTML, HTML / page_name, href) for href in report["links"]]
    assert list(filter(None, dead)) == []
    assert overflow == ""


@pytest.mark.parametrize("page_name", READ)
def test_no_page_names_a_content_network(page_name: str) -> None:
    """Scripts, styles, fonts and pictures come from the book itself."""
    text = (HTML / page_name).read_text(encoding="utf-8")
    loaded = re.findall(r'<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)="([^"]+)"', text)
    foreign = [url for url in loaded if re.match(r"(https?:)?//", url)]
    assert [url for url in foreign if not (SITE and url.startswith(SITE))] == []
    text = re.sub(r'<a class="launch-link".*?</a>', "", text)  # a link is followed, not loaded
    assert not re.search(r"unpkg|jsdelivr|cdnjs|googleapis|mybinder", text)
