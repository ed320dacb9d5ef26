import base64
import io
import re
import xml.etree.ElementTree as ET

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from steinis_lib.companion import figures

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}href"


@pytest.fixture(autouse=True)
def style():
    """Use the project's style, and leave matplotlib as it was."""
    with mpl.rc_context():
        plt.switch_backend("agg")
        figures.use_style()
        yield
    plt.close("all")


def picture():
    """A figure with all that makes ids and references: clips, glyphs, markers, a colour bar."""
    figure, (left, right) = plt.subplots(1, 2)
    x = np.linspace(0, 1, 20)
    figures.band(left, x, x, x - 0.1, x + 0.1, "curve $x_1$", "blue", linestyle="--")
    left.plot(x, 1 - x, "o", color=figures.COLOURS["red"], label="dots")
    left.legend()
    left.set(xlabel="time", title="a & b <c>")
    figure.colorbar(right.imshow(np.outer(x, x)))
    return figure


def contrast(first, second):
    """The contrast ratio of WCAG 2."""

    def luminance(colour):
        channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        return linear @ [0.2126, 0.7152, 0.0722]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_is_that_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("background", ["#ffffff", "#121212"])
@pytest.mark.parametrize("name", figures.COLOURS)
def test_every_colour_is_seen_in_light_and_dark_mode(name, background):
    assert contrast(figures.COLOURS[name], background) >= 3


def test_colours_are_different():
    assert len(set(figures.COLOURS.values())) == len(figures.COLOURS)


def test_an_svg_is_well_formed_and_has_role_and_description():
    alt = "KL < 1 & \"steady\", d'après l'équation"
    root = ET.fromstring(figures.svg(picture(), alt))
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == alt  # escaped on the way, or it would not parse
    assert root.get("width") == "100%"
    assert re.fullmatch(r"max-width:[\d.]+pt", root.get("style"))
    assert root.get("viewBox")


def test_text_and_axes_take_the_colour_of_the_page():
    text = figures.svg(picture(), "a picture")
    assert text.count("currentColor") > 10
    assert figures._TEXT not in text
    # Black would vanish on a dark page, and white on a light one.
    assert not re.search(r"(fill|stroke): ?(#000000|#ffffff|black|white)\b", text)
    assert figures.COLOURS["blue"] in text


@pytest.mark.parametrize("colour", ["text.color", "axes.edgecolor", "xtick.color"])
def test_the_sentinel_is_no_colour_of_data(colour):
    assert mpl.rcParams[colour] == figures._TEXT
    assert figures._TEXT not in figures.COLOURS.values()


def ids(text):
    return re.findall(r'\bid="([^"]+)"', text)


def references(text):
    return re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)


PAIRS = [
    ("KL against time", "KSD squared against time"),
    ("The same long beginning of a description, which goes on and on, with one panel",
     "The same long beginning of a description, which goes on and on, with two panels"),
    ("λ", "μ"),
    ("one: two", "one, two"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=["short", "long", "greek", "punctuation"])
def test_ids_are_unique_on_a_page_with_several_figures(pair):
    page = [figures.svg(picture(), alt) for alt in pair]
    assert all(len(ids(text)) > 20 for text in page)
    found = ids("".join(page))
    assert len(set(found)) == len(found)
    for text in page:
        assert len(references(text)) > 20
        assert set(references(text)) <= set(ids(text))


def test_an_id_is_one_that_html_and_css_accept():
    for name in ids(figures.svg(picture(), "2 × 10⁴ steps: (a) and #b")):
        assert not re.search(r"[\s\"'()#<>&]", name)


def test_an_svg_refers_to_nothing_outside():
    text = figures.svg(picture(), "a picture")
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert "http" not in without_names
    assert "<metadata" not in text and "<!DOCTYPE" not in text and "<?xml" not in text
    for element in ET.fromstring(text).iter():
        link = element.get(XLINK) or element.get("href")
        assert link is None or link.startswith(("#", "data:image/png"))


@pytest.mark.slow
def test_the_same_figure_gives_the_same_text():
    first, again = (figures.svg(picture(), "a picture") for _ in range(2))
    assert first == again
    assert not re.search(r"\d{4}-\d\d-\d\dT", first)  # no date
    other = picture()
    other.axes[0].set_title("another")
    assert figures.svg(other, "a picture") != first


def test_show_closes_the_figure_and_says_what_it_shows():
    shown = figures.show(picture(), "what it shows")
    assert plt.get_fignums() == []
    assert repr(shown) == "Figure: what it shows"
    markup = shown._repr_html_()
    assert markup.startswith('<div class="steinis-figure"><svg') and markup.endswith("</div>")
    assert 'aria-label="what it shows"' in markup


def test_a_figure_with_a_number_has_its_caption_and_the_width_that_its_words_need():
    shown = figures.show(picture(), "what it shows", "5.3", "a < b & c")
    element = ET.fromstring(shown._repr_html_())
    assert element.get("id") == "figure-5-3"
    assert "".join(element.find("figcaption").itertext()) == "Figure 5.3. a < b & c"
    assert element.get("style") == f"--least:{shown.least}px"


def test_the_least_width_makes_the_smallest_words_nine_pixels_high():
    figure, axes = plt.subplots(figsize=(8, 4))
    axes.set_title("small", fontsize=6)
    axes.set_xlabel("", fontsize=1)  # no words
    assert figures.least_width(figure) == 72 * 8 * 9 / 6
    assert figures.least_width(figure, 12) == 72 * 8 * 12 / 6


def gif(n_frames, alt="an animation"):
    def draw(figure, frame):
        figure.add_subplot().plot([0, 1], [0, frame], color=figures.COLOURS["blue"])

    markup = figures.animate(draw, n_frames, alt)._repr_html_()
    data = re.search(r'src="data:image/gif;base64,([^"]+)"', markup)[1]
    return markup, Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.mark.parametrize("n_frames", [1, 4])
def test_an_animation_is_a_gif_with_all_its_frames_that_loops(n_frames):
    _, image = gif(n_frames)
    assert image.format == "GIF"
    assert getattr(image, "n_frames", 1) == n_frames
    if n_frames > 1:
        assert image.info["loop"] == 0
        frames, pauses = set(), []
        for i in range(n_frames):
            image.seek(i)
            pauses.append(image.info["duration"])
            frames.add(image.convert("RGB").tobytes())
        assert len(frames) == n_frames
        assert pauses == [120] * (n_frames - 1) + [2500]


def test_an_animation_is_dark_on_a_white_card_with_a_description():
    alt = 'Clouds "move" & settle <here>'
    markup, image = gif(2, alt)
    rgb = np.asarray(image.convert("RGB")).reshape(-1, 3)
    assert (rgb >= 250).all(1).mean() > 0.7
    assert rgb.sum(1).min() < 200
    element = ET.fromstring(markup).find("img")
    assert element.get("alt") == alt
    assert plt.get_fignums() == []
    assert mpl.rcParams["text.color"] == figures._TEXT  # the style is as before


def test_an_animation_with_a_number_is_folded_and_has_the_data_of_all_frames(monkeypatch, tmp_path):
    def draw(figure, frame):
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, frame], label="moves")
        axes.plot([0, 1], [7, 7], label="stays")

    monkeypatch.setenv("STEINIS_FIGURES", str(tmp_path))
    element = ET.fromstring(figures.animate(draw, 3, "moving", "1.2", "It moves.")._repr_html_())
    (details,) = element.iter("details")
    assert details.find("img") is not None and details.get("open") is None
    data = pd.read_csv(tmp_path / "figure-1-2.csv", comment="#")
    moves = data[data.series == "moves"]
    assert sorted(moves.y) == [0, 0, 1, 2]  # the point that stays is there once
    assert data[data.series == "stays"].frame.tolist() == [0, 0]
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".svg", ".pdf"}
