"""Links to numbered figures and tables, and to the files of figures."""

import json
from pathlib import Path
from typing import Any

import pytest
from bookparts import numbered

PAGES = {"figure-5-3": "sections/05_vae", "table-4-1": "sections/04_rbm"}


def with_links(html: str) -> str:
    return numbered.with_links(html, "sections/05_vae", PAGES, "../")


def test_a_mention_becomes_a_link_within_the_page_or_to_another() -> None:
    assert with_links("<p>See Figure 5.3.</p>") == (
        '<p>See <a class="reference internal" href="#figure-5-3">Figure 5.3</a>.</p>'
    )
    found = with_links("<td>Table 4.1</td>")
    assert 'href="../sections/04_rbm.html#table-4-1"' in found


@pytest.mark.parametrize(
    "html",
    [
        "<p>the paper's Figure 5, and Figure 5.33, and Table 5.3</p>",  # nothing of these numbers
        '<a href="x">Figure 5.3</a>',
        "<figcaption><span>Figure 5.3.</span> As in Figure 5.3</figcaption>",
        "<pre># Figure 5.3</pre>",
        '<svg aria-label="Figure 5.3"><path/><text>Figure 5.3</text></svg>',
        "<h2>About Figure 5.3</h2>",
    ],
)
def test_what_is_no_text_or_no_figure_of_the_book_stays(html: str) -> None:
    assert with_links(html) == html


def test_text_after_an_element_that_has_no_links_has_links_again() -> None:
    found = with_links('<pre>Figure 5.3<br></pre><img src="a"><p>Figure 5.3</p>')
    assert found.count("<a ") == 1 and found.endswith("</a></p>")


def test_below_a_figure_stand_its_files() -> None:
    figure = '<figure class="steinis-figure" id="figure-5-3"><div><svg/></div></figure>'
    table = '<figure class="steinis-table" id="table-4-1"><table/></figure>'
    found = numbered.with_files(figure + table, {"figure-5-3": ["csv", "pdf"]}, "../")
    assert found.endswith(table)
    for kind in ("csv", "pdf"):
        assert f'<a href="../figures/figure-5-3.{kind}" download>' in found
    assert "SVG" not in found
    assert numbered.with_files(figure, {}, "../") == figure


def test_figures_are_found_in_the_executed_notebooks(tmp_path: Path) -> None:
    def output(html: str) -> dict[str, Any]:
        return {"data": {"text/html": [html]}, "output_type": "display_data"}

    one = '<figure class="steinis-figure" id="figure-2-1" style="--least:9px">'
    two = '<figure class="steinis-table" id="table-2-1">'
    cells = [{"outputs": [output(one), output(two)]}, {"cell_type": "markdown"}]
    folder = tmp_path / "sections"
    folder.mkdir()
    (folder / "02_x.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    page = "sections/02_x"
    assert numbered.numbered_elements(folder) == {"figure-2-1": page, "table-2-1": page}
