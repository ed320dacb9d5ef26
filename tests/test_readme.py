"""The example that README and landing page show runs, and gives what they say."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def example(path: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / path).read_text("utf-8"), flags=re.DOTALL)
    return code


def test_readme_and_landing_page_show_the_same_example() -> None:
    assert example("README.md") == example("book/index.md")


def test_the_example_finds_log_z_within_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict = {}
    exec(example("README.md"), namespace)
    torch, sample, target = (namespace[name] for name in ("torch", "sample", "target"))
    grid = torch.linspace(-5, 12, 1701, dtype=torch.float64)
    points = torch.cartesian_prod(grid, grid)
    log_z = target.log_prob(points).logsumexp(0) + 2 * (grid[1] - grid[0]).log()
    (stated,) = re.findall(r"log Z is ([\d.]+)", example("README.md"))
    assert float(log_z) == pytest.approx(float(stated), abs=1e-4)
    assert abs(sample.log_z - log_z) < 4 * sample.log_z_se
    assert sample.log_z_se < 0.05
    assert sample.pareto_k < 0.7
    assert capsys.readouterr().out.count("tensor") == 3


@pytest.mark.slow
def test_what_the_readme_types_at_the_prompt_gives_what_it_says() -> None:
    (session,) = re.findall(
        r"```pycon\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), flags=re.DOTALL
    )
    test = doctest.DocTestParser().get_doctest(session, {}, "README.md", "README.md", 0)
    runner = doctest.DocTestRunner()
    assert runner.run(test).failed == 0
    assert runner.tries == 5
