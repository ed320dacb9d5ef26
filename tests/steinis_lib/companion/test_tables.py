import xml.etree.ElementTree as ET

import pytest

from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.tables import LONGEST, interval, number, table


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.00123456, 3, "0.00123"),
        (57.34, 2, "57"),
        (99.96, 2, "100"),
        (203.4, 2, "203"),  # three digits at least from 100 on
        (-101.23, 4, "-101.2"),
        (999.6, 3, "1,000"),
        (-12_345.6, 3, "-12,300"),
        (float("inf"), 3, "inf"),
        (0, 3, "0"),
    ],
)
def test_large_numbers_have_no_power_of_ten(value, digits, text):
    assert number(value, digits) == text


def test_an_interval_is_scaled_as_a_whole():
    assert interval(Estimate(1.5, 1.25, 2.0), 2, scale=1e3) == "1,500 [1,250, 2,000]"


def test_a_table_with_a_number_has_its_caption_and_no_index():
    shown = table([{"d": 1, "error": "2 [1, 3]"}], "4.2", "Errors & more.")
    html = shown._repr_html_()
    assert '<figure class="steinis-table" id="table-4-2">' in html
    assert "Table 4.2.</span> Errors &amp; more.</figcaption>" in html
    assert html.index("<figcaption") < html.index("<table")
    assert ">2 [1,\N{NO-BREAK SPACE}3]<" in html  # no line ends within an interval
    assert "<details>" not in html and "details" not in repr(shown)
    assert repr(shown).startswith("Table 4.2. Errors & more.")


def test_a_table_of_many_rows_is_folded_below_its_caption():
    rows = [{"n": n} for n in range(LONGEST + 1)]
    html = table(rows, "4.3", "Many.")._repr_html_()
    assert html.index("<figcaption") < html.index("<details>") < html.index("<table")
    assert f"Show the {LONGEST + 1} rows" in html
    assert "<details>" not in table(rows[:-1])._repr_html_()


def test_the_same_table_gives_the_same_text():
    first, again = (table({"a": [1]}, "4.4", "One.")._repr_html_() for _ in range(2))
    assert first == again
    assert ET.fromstring(table({"a": ["x"]}, "4.4", "One.")._repr_html_()) is not None
