"""Names, roles and landmarks that the theme's pages lack are put right."""

from bookparts import accessible

BROKEN = """\
<div id="pst-primary-sidebar" class="bd-sidebar-primary bd-sidebar">
<button class="btn search-button-field x" title="Search" aria-label="Search"><span>Search</span>
<a class="current reference internal" href="#">API</a><details><summary>\
<span class="toctree-toggle" role="presentation"></span></summary>
<div role="list" class="citation-list"><div class="citation" role="doc-biblioentry"></div></div>
<th class="head"><p></p></th><th class="head"><p>Kept</p></th>
<dl>
<dd><em>x</em>,</dd>
<dd><em>y</em></dd>
</dl>
<dl>
<dt>term</dt>
<dd>kept</dd>
</dl>
"""


def test_names_roles_and_landmarks_are_put_right() -> None:
    html = accessible.repaired(BROKEN)
    assert 'role="region" aria-label="Book">' in html
    assert '<button class="btn search-button-field x" type="button"><span>' in html
    assert '<summary aria-label="Pages of API">' in html
    assert "doc-biblioentry" not in html and 'role="list"' not in html
    assert html.count("<th") == 1 and '<td class="head"></td>' in html
    assert '<span class="sig-line"><em>y</em></span>' in html and "<dt>term</dt>\n<dd>" in html
    assert accessible.repaired(html) == html


def test_pages_on_disk_are_repaired_in_all_folders(tmp_path) -> None:
    page = tmp_path / "sections" / "a.html"
    page.parent.mkdir()
    page.write_text(BROKEN, "utf-8")
    accessible.repair(tmp_path)
    assert page.read_text("utf-8") == accessible.repaired(BROKEN)
