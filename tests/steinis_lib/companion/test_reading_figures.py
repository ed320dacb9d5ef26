import math
import re
import xml.etree.ElementTree as ET

import matplotlib as mpl
import numpy as np
import pytest
import toy_claims

from steinis_lib.companion import figures, reading_figures
from steinis_lib.companion.claims import Claim, Finding
from steinis_lib.companion.intervals import Estimate
from steinis_lib.companion.reading_claims import Judged, Reading, judge
from steinis_lib.companion.reading_figures import readings_figure

RANGES = ((0.0, 1.5), (0.0, 3.0))


def finding(*rows, ranges=RANGES):
    """A finding with readings (value, low, high, choices); the first one is primary."""
    claim = Claim(id="c", where="5.1", paper="it is < 2", paper_value="1", measure="m", unit="nats")
    judged = []
    for i, (value, low, high, choices) in enumerate(rows):
        reading = Reading(name=f"r{i}", primary=i == 0, choices=choices, why="because")
        e = None if value is None else Estimate(value, low, high)
        verdict = "not yet run" if e is None else judge(e, *ranges)
        judged.append(Judged(reading, choices, ranges, e, verdict))
    return Finding(claim, tuple(judged))


MANY = (
    (2.5, 2, 2.9, {"kernel": "rule", "target": "easy", "d": 20}),
    (1.0, 0.9, 1.2, {"kernel": "wide", "target": "easy", "d": 20}),
    (30.0, 8, 50, {"kernel": "rule", "target": "easy", "d": 5}),
)


@pytest.fixture
def drawn(monkeypatch):
    """Catch the matplotlib figure before it becomes SVG."""
    caught = []

    def show(figure, alt, *_):
        caught.append((figure, alt))
        return figures.Picture("", alt)

    monkeypatch.setattr(reading_figures.figures, "show", show)
    return caught


def test_the_caption_counts_verdicts_and_the_data_have_all_that_is_drawn(monkeypatch):
    shown = []
    monkeypatch.setattr(
        reading_figures.figures, "show", lambda figure, alt, *more: shown.append(more)
    )
    readings_figure(finding(*MANY), "5.3")
    ((number, caption, data),) = shown
    assert number == "5.3"
    assert "“it is < 2” under 3 readings: reproduced under 1, partly under 1, not " in caption
    assert caption.endswith("follows from the primary reading and is “partly”.")
    assert data["number"].tolist() == [2, 1, 3] and data["value"].tolist() == [1, 2.5, 30]
    assert data["verdict"].tolist() == ["reproduced", "partly", "not reproduced"]
    assert data["kernel"].tolist() == ["wide", "rule", "rule"]
    assert data["primary"].tolist() == [False, True, False]


def marks(axes):
    """The markers of the intervals' panel: (x, y, shape, fill)."""
    lines = [line for line in axes.get_lines() if line.get_marker() not in ("None", None)]
    return [
        (float(line.get_xdata()[0]), float(line.get_ydata()[0]), line.get_marker(),
         line.get_fillstyle())
        for line in lines
    ]  # fmt: skip


def test_readings_are_sorted_and_verdicts_are_told_by_shape_and_fill(drawn):
    readings_figure(finding(*MANY))
    ((figure, _),) = drawn
    upper, lower = figure.axes
    assert marks(upper) == [
        (0, 1.0, "o", "full"), (1, 2.5, "D", "left"), (2, 30.0, "s", "none"),
    ]  # fmt: skip
    assert [t.get_text() for t in lower.get_xticklabels()] == ["2", "1", "3"]
    (word,) = upper.texts
    assert word.get_text() == "primary" and word.xy[0] == 1
    assert upper.get_ylabel() == "nats"


def test_each_choice_has_a_row_and_each_reading_its_dots(drawn):
    readings_figure(finding(*MANY))
    _, lower = drawn[0][0].axes
    rows = [t.get_text() for t in lower.get_yticklabels()]
    assert rows == ["kernel rule", "kernel wide", "d 5", "d 20"]  # all have the same target
    large = {
        (round(float(line.get_xdata()[0])), rows[round(float(line.get_ydata()[0]))])
        for line in lower.get_lines()
        if line.get_marker() == "o" and line.get_markersize() > 3
    }
    assert large == {
        (0, "kernel wide"), (0, "d 20"), (1, "kernel rule"), (1, "d 20"), (2, "kernel rule"),
        (2, "d 5"),
    }  # fmt: skip


def test_the_axis_is_logarithmic_where_values_are_positive_and_far_apart(drawn):
    readings_figure(finding(*MANY))
    readings_figure(finding(*MANY[:2]))
    readings_figure(finding((-1, -2, -0.5, {}), (30, 20, 50, {"a": 1})))
    scales = [figure.axes[0].get_yscale() for figure, _ in drawn]
    assert scales == ["log", "linear", "linear"]


def test_everything_is_inside_the_axes_and_infinity_reaches_their_end(drawn):
    readings_figure(finding((math.inf, 2, math.inf, {}), (1, -math.inf, 2, {"a": 1})))
    upper = drawn[0][0].axes[0]
    low, high = upper.get_ylim()
    assert [y for _, y, *_ in marks(upper)] == [1, high]
    ends = np.concatenate(
        [path.vertices[:, 1] for c in upper.collections for path in c.get_paths()]
    )
    assert ends.min() == pytest.approx(low) and ends.max() == pytest.approx(high)


def test_what_was_not_run_is_left_out_and_one_reading_makes_no_figure(drawn):
    readings_figure(finding(*MANY, (None, 0, 0, {"kernel": "double"})))
    _, lower = drawn[0][0].axes
    assert len(lower.get_xticklabels()) == 3
    assert readings_figure(finding(MANY[0], (None, 0, 0, {}))) is None
    assert readings_figure(finding(MANY[0])) is None


def test_without_choices_there_is_one_panel(drawn):
    readings_figure(finding((1, 0, 2, {}), (2, 1, 3, {})))
    assert len(drawn[0][0].axes) == 1


def test_ranges_of_one_reading_are_drawn_in_its_column_only(drawn):
    first = finding(*MANY)
    own = Judged(Reading(name="own", why="b"), {}, ((20, 60), (10, 90)), Estimate(40, 30, 50),
                 "reproduced")  # fmt: skip
    readings_figure(Finding(first.claim, (*first.readings, own)))
    upper = drawn[0][0].axes[0]
    bands = [c.get_paths()[0].get_extents() for c in upper.collections if c.get_alpha()]
    assert [(b.x0, b.x1) for b in bands] == [(-0.5, 2.5)] * 2 + [(2.5, 3.5)] * 2
    assert (bands[2].y0, bands[2].y1) == pytest.approx((20, 60))


def test_the_description_says_what_is_drawn():
    picture = readings_figure(finding(*MANY))
    root = ET.fromstring(picture.markup)
    alt = root.get("aria-label")
    assert alt == repr(picture).removeprefix("Figure: ")
    assert "“it is < 2” (5.1)" in alt
    assert re.search(r"2\. r1: 1 \[0\.9, 1\.2\] nats, reproduced; 1\. r0 \(primary\): 2\.5 ", alt)


def test_the_figure_takes_the_pages_colours_and_leaves_the_style_alone():
    before = dict(mpl.rcParams)
    text = readings_figure(finding(*MANY)).markup
    assert dict(mpl.rcParams) == before
    assert text.count("currentColor") > 10 and figures._TEXT not in text
    assert not re.search(r"(fill|stroke): ?(#000000|#ffffff|black|white)\b", text)


def test_figures_of_a_claim_of_the_toys(monkeypatch):
    toy_claims.install(monkeypatch)
    (claim, *_) = toy_claims.ledger()
    found = Finding(claim, tuple(claim.judged(r, toy_claims.tree()) for r in claim.readings))
    assert "kernel" not in readings_figure(found).alt.split(". 1.")[0]
    assert "4. hard targets: 4 [" in readings_figure(found).alt
