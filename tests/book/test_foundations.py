"""The numbers and figures of the foundations and method pages, and the glossary's terms."""

import math
import re
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from examples import draw, foundations_figures, method
from examples import foundations as basics

BOOK = Path(__file__).resolve().parents[2] / "book"
PAGES = {name: (BOOK / f"{name}.md").read_text("utf-8") for name in ("foundations", "method")}
GLOSSARY = (BOOK / "glossary.md").read_text("utf-8")
TERMS = re.findall(r"^(?=\S)(.+)\n  \S", GLOSSARY.partition("{glossary}")[2], re.MULTILINE)


def says(page: str, text: str, *values: float) -> None:
    """Check that a page has the text, with these values, rounded, where the text has ``#``."""
    pattern = re.escape(" ".join(text.split())).replace(r"\#", r"(-?[\d.]*\d)")
    found = re.findall(pattern, " ".join(PAGES[page].split()))
    assert len(found) == 1, f"{len(found)} places on the page {page!r} say: {text}"
    numbers = found[0] if isinstance(found[0], tuple) else (found[0],)
    for number, value in zip(numbers, values, strict=True):
        unit = 10.0 ** -len(number.partition(".")[2])
        # A little more than half a unit, for values that lie halfway between two numbers.
        assert abs(float(number) - value) <= 0.55 * unit, f"{text}: {number}, but it is {value}"


def test_a_wrong_number_is_noticed() -> None:
    says("method", r"$\log Z=\frac12\log2\pi=#$", 0.919)
    with pytest.raises(AssertionError, match="but it is"):
        says("method", r"$\log Z=\frac12\log2\pi=#$", 0.9179)
    with pytest.raises(AssertionError, match="0 places"):
        says("method", r"$\log Z=\frac13\log2\pi=#$", 0.919)


# ---------------------------------------------------------------- Foundations


def test_numbers_on_two_gaussians() -> None:
    chi2 = basics.chi_squared(2.0)
    says("foundations", r"For $\sigma=2$ it gives $\chi^2=#$", chi2)
    says("foundations", r"worth $1000/#\approx #$", 1 + chi2, 1000 / (1 + chi2))
    one = 1 + basics.chi_squared(1.2)
    says("foundations", "it is # for one coordinate", one)
    says("foundations", r"$#^{100}\approx #$", one, one**100)
    says("foundations", "1000 draws are worth about #", 1000 / one**100)


@pytest.mark.slow
def test_runs_follow_the_law_where_it_is_finite() -> None:
    for sigma in (0.9, 1.2, 2.0, 3.0):
        run, chi2 = basics.importance_runs(sigma), basics.chi_squared(sigma)
        assert run.scaled_variance == pytest.approx(chi2, rel=0.2)  # 1000 runs: 4.5 % is 1 s.e.
        assert run.ess_share == pytest.approx(1 / (1 + chi2), rel=0.01)
    narrow = basics.importance_runs(0.6)
    says("foundations", r"$\mathrm{ESS}/n$ in 1000 runs is #", narrow.ess_share)


@pytest.mark.slow
def test_numbers_on_annealing() -> None:
    j = basics.jeffreys()
    says("foundations", "$J=#$ nats", j)
    says("foundations", "$J/2K=#$ nats", j / 200)
    five, one = basics.line_gap(100, 5), basics.line_gap(100, 1)
    text = "Kernels of five leapfrog steps leave #, and kernels of one leave #"
    says("foundations", text, five, one)
    assert basics.LOG_Z == 1


def test_the_energy_error_keeps_to_its_bound_and_comes_close_to_it() -> None:
    for epsilon in (0.1, 0.25, 0.5, 0.8, 1.6):
        assert 0.95 <= basics.energy_error(epsilon) / (epsilon**2 / 8) <= 1 + 1e-9
    assert basics.energy_error(2.05) > 1000
    text = r"at most # at $\epsilon=0.5$ and # at $\epsilon=0.25$"
    says("foundations", text, 0.5**2 / 8, 0.25**2 / 8)


@pytest.mark.slow
def test_numbers_on_refresh() -> None:
    gamma = basics.half_of_variance(0.5)
    rho = math.sqrt(1 - gamma)
    says("foundations", r"this is $\gamma=#$, and the factor is #", gamma, (1 + rho) / (1 - rho))
    full, partial = (basics.steps_to_forget(basics.walk(g)) for g in (1.0, gamma))
    says(
        "foundations",
        "after # transitions with full refresh, and after # with partial refresh",
        full,
        partial,
    )


@pytest.mark.slow
def test_numbers_on_hais() -> None:
    gaps = [
        basics.annealed_gap(300 // leapfrogs, dim=10, n_leapfrog=leapfrogs, refresh=gamma)
        for _, leapfrogs, gamma, _, _ in foundations_figures.HAIS_METHODS
    ]
    text = (
        "the gap is # nats for HAIS-1L with full refresh, # with partial refresh, and # for five "
        "leapfrog steps"
    )
    says("foundations", text, *gaps)
    ten = basics.annealed_gap(30, dim=10, n_leapfrog=10)
    text = "with ten, and therefore # transitions instead of #, the gap is #"
    says("foundations", text, 30, 60, ten)
    says("foundations", "takes a time of # here", 10 * 0.3)
    says("foundations", r"$2\pi\cdot0.6\approx#$", 2 * math.pi * 0.6)


@pytest.mark.slow
def test_numbers_on_bounds() -> None:
    few, many = basics.bound_runs(10), basics.bound_runs(100)
    means = [float(side.mean()) for run in (few, many) for side in (run.lower, run.upper)]
    text = "the means are $#$ and # with 10 transitions, and # and # with 100"
    says("foundations", text, *means)
    assert means[0] < means[2] < basics.LOG_Z < means[3] < means[1]
    says("foundations", "at most # % for $a=3$", 100 * math.exp(-3))
    for run in (few, many):
        assert float((run.lower > basics.LOG_Z + 3).double().mean()) < math.exp(-3)
        assert float((run.upper < basics.LOG_Z - 3).double().mean()) < math.exp(-3)


def test_numbers_in_the_exercises() -> None:
    says("foundations", r"# draws for $\mu=1$", math.ceil((math.e - 1) / 0.01))
    says("foundations", r"about # 000 for $\mu=3$", (math.exp(9) - 1) / 0.01 / 1000)
    says("foundations", "a gap of 0.1 needs $K=#$", 3**2 / (2 * 0.1))


# ---------------------------------------------------------------- Method


def test_the_worked_example() -> None:
    step = method.worked_step(0.1)
    says("method", r"$\phi(0)=-3/e=#$ and $\phi'(0)=-4/e=#$", step.phi, step.slope)
    assert step.phi == pytest.approx(-3 / math.e)
    assert step.slope == pytest.approx(-4 / math.e)
    says("method", r"$0+0.1\cdot(#)=#$", step.phi, step.moved)
    says("method", r"$1+0.1\cdot(#)=#$", step.slope, step.determinant)
    says("method", r"$\log q_0(0)=#$ becomes", step.log_q_before)
    values = (step.moved, step.log_q_before, step.determinant, step.log_q_after)
    says("method", r"$\log q_1(#)=#-\log#=#$", *values)
    says("method", r"$\log w=\log\bar p(0)-\log q_0(0)=#$", step.log_w_before)
    log_p = -(step.moved**2) / 2
    says("method", r"$\log\bar p(#)=#$", step.moved, log_p)
    says("method", r"$\log w=#+#=#$", log_p, -step.log_q_after, step.log_w_after)
    says("method", r"$\mathrm{KL}(q_1\,\|\,p)=#$, where it was 0", method.worked_kl(0.1))
    assert step.log_w_before == pytest.approx(0.5 * math.log(2 * math.pi))


def test_numbers_on_folds() -> None:
    at, slope = method.steepest()
    says("method", r"$\phi'$ is lowest at $y=#$, where it is $#$", at, slope)
    says("method", r"$\epsilon>1/#=#$", -slope, -1 / slope)
    says("method", r"up to $\epsilon=#$", -1 / method.worked_step().slope)
    small, large = method.fold(0.67), method.fold(1.2)
    says("method", "negative between $#$ and $#$ only", small.low, small.high)
    says("method", "where # % of the draws", 100 * small.mass)
    says("method", "none is there with probability #", (1 - small.mass) ** 20)
    text = r"at $\epsilon=1.2$, the determinant is negative between $#$ and $#$, for # %"
    says("method", text, large.low, large.high, 100 * large.mass)
    says("method", r"$\mathbb{E}[\hat Z]=#\,Z$", large.bias)
    ends = method.one_leader(1.2)(method.column(large.high, large.low)).flatten().tolist()
    says("method", "Between $#$ and $#$ each place is reached", *ends)


@pytest.mark.slow
def test_numbers_on_kl() -> None:
    few, many, limit = (
        method.towards_two_modes(10),
        method.towards_two_modes(100),
        method.mean_field(),
    )
    says("method", "KL starts at # nats", float(many.kl[0]))
    lowest = int(many.kl.argmin())
    says("method", "it falls to # by $t=#$", float(many.kl[lowest]), float(many.times[lowest]))
    text = "With 10 leaders it ends, at $t=#$, at #, above its start"
    says("method", text, float(few.times[-1]), float(few.kl[-1]))
    assert few.kl[-1] > few.kl[0]
    assert bool((limit.kl.diff() < 0).all())
    says("method", "The mean field falls all the way, to #", float(limit.kl[-1]))
    ends = [float(method.from_the_answer(m).kl[-1]) for m in (10, 25, 100)]
    says("method", "it is #, # and # nats for 10, 25 and 100 leaders", *ends)
    for m in (10, 25, 100):
        kl = method.from_the_answer(m).kl
        assert abs(float(kl[0])) < 1e-6
        assert bool((kl[1:] > 1e-4).all())


# ---------------------------------------------------------------- Figures


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All figures, drawn once."""
    path = tmp_path_factory.mktemp("figures")
    draw.draw_all(path)
    return path


@pytest.mark.slow
def test_pages_show_all_figures_and_no_other(folder: Path) -> None:
    shown = [
        name
        for page in PAGES.values()
        for name in re.findall(r"\{inline-svg\} _generated/(\w+)\.svg", page)
    ]
    assert sorted(shown) == sorted(draw.DRAWINGS)
    assert {path.stem for path in folder.iterdir()} == set(draw.DRAWINGS)


@pytest.mark.slow
@pytest.mark.parametrize("name", draw.DRAWINGS)
def test_a_figure_follows_the_mode_and_is_described(folder: Path, name: str) -> None:
    text = (folder / f"{name}.svg").read_text("utf-8")
    root = ET.fromstring(text)
    assert "currentColor" in text
    assert "#000000" not in text
    assert len(root.attrib["aria-label"]) > 100


@pytest.mark.slow
def test_fresh_figures_are_not_drawn_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Path] = []
    monkeypatch.setattr(draw, "draw_all", drawn.append)
    draw.draw_if_needed(folder)
    assert drawn == []
    (folder / "hais.svg").rename(folder / "away.svg")
    draw.draw_if_needed(folder)
    (folder / "away.svg").rename(folder / "hais.svg")
    assert drawn == [folder]


def test_every_figure_has_a_name_and_a_caption() -> None:
    for page in PAGES.values():
        blocks = re.findall(r"```\{inline-svg\} \S+\n(.*?)\n```", page, re.DOTALL)
        assert len(blocks) >= 4
        for block in blocks:
            name, _, caption = block.partition("\n")
            assert re.fullmatch(r":name: fig-[fm]-[a-z]+", name)
            assert len(caption) > 50


@pytest.mark.slow
def test_the_directive_puts_the_svg_into_a_numbered_figure(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    source = tmp_path / "source"
    source.mkdir()
    (source / "dot.svg").write_text('<svg><circle r="1"/></svg>', "utf-8")
    (source / "index.md").write_text(
        "# Page\n\n```{inline-svg} dot.svg\n:name: fig-dot\nA *round* dot.\n```\n\n"
        "See {numref}`fig-dot`.\n\n```{inline-svg} none.svg\nNothing.\n```\n",
        "utf-8",
    )
    status, html = build_with_sphinx(source, tmp_path)
    assert "the SVG file cannot be read" in status
    assert '<svg><circle r="1"/></svg>' in html
    assert re.search(r"<figcaption>.*Fig\. 1.*<em>round</em>", html, re.DOTALL)
    assert re.search(r'href="#fig-dot".*Fig\. 1', html)


def build_with_sphinx(source: Path, tmp_path: Path) -> tuple[str, str]:
    """Build a page with the directive; return the warnings and the page."""
    import io

    from sphinx.application import Sphinx

    messages = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        app = Sphinx(
            source,
            None,
            tmp_path / "html",
            tmp_path / "doctrees",
            "html",
            confoverrides={
                "extensions": ["myst_parser", "bookparts.inline_svg"],
                "numfig": True,
                "html_theme": "basic",
            },
            status=None,
            warning=messages,
        )
        app.build()
    return messages.getvalue(), (tmp_path / "html" / "index.html").read_text("utf-8")


# ---------------------------------------------------------------- Glossary


def test_terms_are_unique_and_sorted() -> None:
    assert len(TERMS) > 40
    assert sorted(TERMS, key=lambda term: term.replace("-", "").casefold()) == TERMS


@pytest.mark.parametrize("page", PAGES)
def test_a_page_links_each_term_once_and_only_to_the_glossary(page: str) -> None:
    links = re.findall(r"\{term\}`([^`<]+?)(?: <([^>]+)>)?`", PAGES[page])
    targets = [target or text for text, target in links]
    assert len(targets) > 10
    assert set(targets) <= set(TERMS)
    assert len(set(targets)) == len(targets)


@pytest.mark.parametrize(
    "term",
    ["nat", "log Z", "ESS", "leader", "follower", "transition", "leapfrog step", "HAIS-1L"]
    + ["refresh", "M-PMC", "k-hat", "KSD", "V-statistic", "decoder evaluation", "reading"]
    + ["verdict", "fold"],
)
def test_the_glossary_has_the_book_s_own_words(term: str) -> None:
    assert term in TERMS


def test_the_discrepancy_has_one_symbol() -> None:
    texts = {path.name: path.read_text("utf-8") for path in BOOK.glob("*.md")}
    counts = {name: text.count(r"\mathbb{D}") for name, text in texts.items()}
    assert {name: n for name, n in counts.items() if n} == {
        "glossary.md": 1  # which says that the paper writes it so
    }
    assert r"\mathrm{KSD}^2" in texts["method.md"]
