import xml.etree.ElementTree as ET

from steinis_lib.companion.captions import folded, identifier, numbered


def test_a_number_gives_the_id_that_links_lead_to():
    assert identifier("Figure", "5.12") == "figure-5-12"
    assert identifier("Table", "1.3") == "table-1-3"


def test_a_figures_box_can_be_scrolled_by_keyboard_and_says_so():
    root = ET.fromstring(numbered("<svg/>", "Figure", "2.1", "KL < 1.", least=600))
    box = root.find("div[@class='numbered-box']")
    assert box.get("tabindex") == "0" and box.get("role") == "region"
    assert box.get("aria-label").startswith("Figure 2.1")
    assert "Scroll sideways" in root.find("p[@class='scroll-hint']").text
    assert root.get("style") == "--least:600px"
    assert [child.tag for child in root] == ["div", "p", "figcaption"]


def test_a_tables_caption_stands_above_it():
    root = ET.fromstring(numbered("<table/>", "Table", "2.1", "Errors."))
    assert [child.tag for child in root] == ["figcaption", "div"]
    assert root.get("style") is None


def test_what_is_folded_is_closed_and_its_summary_is_text():
    root = ET.fromstring(folded("<b>x</b>", "Show 3 < 4"))
    assert root.tag == "details" and root.get("open") is None
    assert root.find("summary").text == "Show 3 < 4"
