"""The built book for readers who use a keyboard, a screen reader, a phone, or no mouse."""

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import HTML, OVERFLOW, PAGES, READ, SETTLED, need_book, open_page, serving

pytestmark = pytest.mark.slow
need_book(module=True)

OPTIONS = {
    "resultTypes": ["violations"],
    "preload": False,  # it would ask for style sheets that are not there
    # Rules that are off by default: a name must have the words that are seen.
    "rules": {name: {"enabled": True} for name in ("label-content-name-mismatch", "target-size")},
}
WIDTHS = (360, 768, 1280)

MODE = """
(mode) => {
  document.documentElement.dataset.theme = mode;
  document.documentElement.dataset.mode = mode;
}
"""

# Parts that scroll sideways and cannot be reached by Tab.
UNREACHABLE = """
() => [...document.querySelectorAll("main *")]
  .filter((e) => ["auto", "scroll"].includes(getComputedStyle(e).overflowX))
  .filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0)
  .filter((e) => !e.closest("mjx-assistive-mml, dialog") && e.tabIndex < 0)
  .filter((e) => !e.querySelector("a[href], button, input, [tabindex='0']"))
  .map((e) => e.outerHTML.slice(0, 120))
"""

FOCUS = """
(element) => {
  const style = getComputedStyle(element);
  return [style.outlineStyle, parseFloat(style.outlineWidth)];
}
"""


@pytest.fixture(scope="module")
def site() -> Any:
    with serving(HTML) as server:
        yield server.address


@pytest.mark.parametrize("name", READ)
def test_axe_finds_nothing_in_either_mode_and_nothing_is_too_wide(
    browser: Any, site: str, name: str
) -> None:
    page, problems = open_page(browser, f"{site}/{name}", site)
    page.wait_for_function(SETTLED, timeout=60_000)
    found = []
    for mode in ("light", "dark"):
        page.evaluate(MODE, mode)
        page.wait_for_timeout(500)  # colours change gradually
        for violation in Axe().run(page, options=OPTIONS).response["violations"]:
            nodes = violation["nodes"]
            found.append((mode, violation["id"], len(nodes), nodes[0]["html"][:200]))
    sizes = []
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("() => new Promise(requestAnimationFrame)")
        sizes += filter(None, [page.evaluate(OVERFLOW)])
    page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    page.wait_for_timeout(200)
    unreachable = page.evaluate(UNREACHABLE)
    page.context.close()
    assert problems == []
    assert found == []
    assert sizes == []
    assert unreachable == []


@pytest.mark.parametrize("name", sorted(set(PAGES) & {"search.html", "genindex.html"}))
def test_axe_finds_nothing_on_pages_of_the_theme(browser: Any, site: str, name: str) -> None:
    page, _ = open_page(browser, f"{site}/{name}", site)
    found = Axe().run(page, options=OPTIONS).response["violations"]
    page.context.close()
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in found] == []


def test_axe_would_notice(browser: Any, site: str) -> None:
    page, _ = open_page(browser, f"{site}/cite.html", site)
    page.evaluate(
        "() => document.querySelector('main article').insertAdjacentHTML('beforeend',"
        '\'<button aria-label="Other">Words</button><img src="_static/favicon.svg">\')'
    )
    found = Axe().run(page, options=OPTIONS).response["violations"]
    page.context.close()
    assert {"image-alt", "label-content-name-mismatch"} <= {v["id"] for v in found}


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_focus_is_seen_on_search_sidebar_download_and_links(
    browser: Any, site: str, mode: str
) -> None:
    page, _ = open_page(browser, f"{site}/claims.html", site, mode)
    wanted = {
        "search": ".search-button-field",
        "sidebar": ".primary-toggle",
        "download": ".dropdown-download-buttons button",
        "mode": ".theme-switch-button",
        "link": "main article p a",
        "filter": ".claims-filter button",
    }
    page.wait_for_selector(wanted["filter"])
    page.keyboard.press("Tab")  # from now on the browser shows focus as for a keyboard
    for what, selector in wanted.items():
        element = page.locator(f"{selector}:visible").first
        element.focus()
        style, width = element.evaluate(FOCUS)
        assert style not in ("none", "hidden") and width >= 2, what
    page.context.close()


def test_claims_can_be_filtered_by_keyboard_and_the_count_is_announced(
    browser: Any, site: str
) -> None:
    page, problems = open_page(browser, f"{site}/claims.html", site)
    rows = page.locator(".claims-table tbody tr")
    status = page.locator(".claims-filter [role=status]")
    n = rows.count()
    assert status.inner_text() == f"{n} of {n} claims are shown."
    failed = page.locator(".claims-filter button[value='not reproduced']")
    failed.focus()
    page.keyboard.press("Enter")
    assert failed.get_attribute("aria-pressed") == "true"
    left = page.locator(".claims-table tbody tr:visible")
    assert 0 < left.count() < n
    assert status.inner_text() == f"{left.count()} of {n} claims are shown."
    chips = [row.locator(".verdict").first.inner_text() for row in left.all()]
    assert set(chips) == {"not reproduced"}
    page.locator(".claims-filter button[value='Section 4']").click()
    assert page.locator(".claims-table:visible").count() == 1
    page.evaluate("() => { location.hash = 'claim-z-unbiased'; }")  # it was filtered out
    page.wait_for_function("() => !document.querySelector('.claims-table tr[hidden]')")
    assert problems == []
    page.context.close()


def test_claims_are_whole_without_scripts(browser: Any, site: str) -> None:
    page, _ = open_page(browser, f"{site}/claims.html", site, java_script_enabled=False)
    assert page.locator(".claims-filter").count() == 0
    heads = page.locator("h3").all_inner_texts()
    assert sum(head.startswith("Section ") for head in heads) == 6
    assert page.locator(".claims-table tbody tr:visible").count() > 20
    page.context.close()


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_an_animation_can_be_paused_and_stands_still_where_motion_is_unwanted(
    browser: Any, site: str, motion: str
) -> None:
    url = f"{site}/sections/01_gmm_convergence.html"
    page, _ = open_page(browser, url, site, reduced_motion=motion)
    button = page.locator(".pause-animation")
    button.wait_for(state="attached")
    button.evaluate("element => { element.closest('details').open = true; }")
    button.wait_for()
    assert button.get_attribute("aria-pressed") == str(motion == "reduce").lower()
    kind = {"true": "data:image/png", "false": "data:image/gif"}
    for _ in range(2):
        picture = page.locator("img:has(+ .pause-animation)")
        assert picture.get_attribute("src").startswith(kind[button.get_attribute("aria-pressed")])
        button.click()
    page.context.close()
