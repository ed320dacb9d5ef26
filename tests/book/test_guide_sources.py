"""The guide's page on constraints and other sources: its code runs, and its results are right.

Truths are computed in other ways than on the page.
"""

import math
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from examples import guide
from guide_checks import z_score
from scipy import integrate, stats

from steinis_lib import estimate_log_z, from_value_and_grad


@pytest.fixture(scope="module")
def sources() -> dict[str, Any]:
    return guide.run_page("guide/sources")[1]


@pytest.mark.slow
def test_constraints(sources: dict[str, Any]) -> None:
    scale = integrate.quad(lambda s: s**2 * math.exp(-3 * s), 0, 30)[0]
    share = integrate.quad(lambda x: x**1.5 * (1 - x) ** 0.5, 0, 1)[0]
    mix = integrate.dblquad(lambda a, b: a**2 * b * (1 - a - b) ** 3, 0, 1, 0, lambda b: 1 - b)[0]
    truth = math.log(scale * share * mix)
    assert sources["truth"] == pytest.approx(truth, abs=1e-6)
    prior = torch.distributions.Dirichlet(torch.tensor([2.0, 2.0, 2.0]))
    found = estimate_log_z(
        sources["log_prob"], parameters=sources["parameters"], q0={**sources["prior"], "mix": prior}
    )
    for result in (found, sources["again"]):
        assert result.warnings == ()
        assert abs(z_score(result, truth)) < 4
    exact = {"sigma": 1.0, "share": 2.5 / 4, "mix[0]": 3 / 9, "mix[1]": 2 / 9, "mix[2]": 4 / 9}
    summary = found.summary()
    for name, value in exact.items():
        assert abs(summary[name]["mean"] - value) < 4 * summary[name]["se"]
    means, errors = sources["means"], sources["errors"]
    assert ((means - torch.tensor([3 / 9, 2 / 9, 4 / 9])).abs() < 4 * errors).all()


@pytest.mark.slow
def test_numbers_from_numpy(sources: dict[str, Any]) -> None:
    found = sources["found"]
    one = integrate.quad(lambda x: 1 / math.cosh(x), -30, 30)[0]
    assert found.warnings == ()
    assert abs(z_score(found, 3 * math.log(one))) < 4


@pytest.mark.slow
def test_a_wrong_gradient_of_a_numpy_function_is_found(sources: dict[str, Any]) -> None:
    wrong = from_value_and_grad(lambda x: (sources["log_sech"](x)[0], np.tanh(x)))
    points = torch.linspace(-1, 2, 15, dtype=torch.float64).reshape(5, 3).requires_grad_()
    assert not torch.autograd.gradcheck(wrong, points, raise_exception=False)


def recipe(name: str) -> guide.Block:
    (block,) = (block for block in guide.blocks("guide/sources") if block.name == name)
    assert block.elsewhere
    return block


def note_below(name: str) -> str:
    after = guide.text_of("guide/sources").partition(f":name: code-{name}\n")[2]
    return after.partition("{note}")[2].partition("```")[0]


def stand_in_for_jax() -> dict[str, ModuleType]:
    """Return modules with the functions of JAX that the recipe uses, made of PyTorch's."""
    jax, jnp = ModuleType("jax"), ModuleType("jax.numpy")
    vars(jnp).update(log=torch.log, cosh=torch.cosh)

    def value_and_grad(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: torch.func.grad_and_value(f)(x)[::-1]

    def vmap(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: tuple(out.numpy() for out in torch.vmap(f)(torch.from_numpy(x)))

    config = SimpleNamespace(update=lambda name, value: None)
    vars(jax).update(
        numpy=jnp, config=config, jit=lambda f: f, vmap=vmap, value_and_grad=value_and_grad
    )
    return {"jax": jax, "jax.numpy": jnp}


@pytest.mark.slow
def test_the_recipe_for_jax(sources: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("jax") is None:
        for name, module in stand_in_for_jax().items():
            monkeypatch.setitem(sys.modules, name, module)
        assert "stand-in for JAX" in note_below("jax")
    variables = dict(sources)
    guide.run([recipe("jax")], variables)
    assert abs(z_score(variables["found"], 3 * math.log(math.pi))) < 4


class StandInModel:
    """What `bridgestan.StanModel` offers of N(1, 2²) in two dimensions, for one point at a time."""

    def __init__(self, model: str, data: str) -> None:
        assert (model, data) == ("model.stan", "data.json")

    def param_unc_num(self) -> int:
        return 2

    def log_density_gradient(
        self, theta_unc: np.ndarray, *, propto: bool = True, jacobian: bool = True, out: Any = None
    ) -> tuple[float, np.ndarray]:
        assert theta_unc.shape == (2,)
        assert jacobian
        constant = 0.0 if propto else -2 * math.log(2 * math.sqrt(2 * math.pi))
        z = (theta_unc - 1) / 2
        return constant - 0.5 * float(z @ z), -z / 2


@pytest.mark.slow
def test_the_recipe_for_bridgestan(
    sources: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("bridgestan")
    vars(module)["StanModel"] = StandInModel
    monkeypatch.setitem(sys.modules, "bridgestan", module)
    variables = dict(sources)
    guide.run([recipe("bridgestan")], variables)
    assert abs(z_score(variables["found"], 0.0)) < 4
    assert "not tested by this project" in note_below("bridgestan")


@pytest.fixture
def usual_floats() -> Iterator[None]:
    usual = torch.get_default_dtype()
    yield
    torch.set_default_dtype(usual)


@pytest.mark.slow
@pytest.mark.usefixtures("usual_floats")
def test_the_recipe_for_pyro_agrees_with_quadrature() -> None:
    assert "tests of this project run this recipe with Pyro" in note_below("pyro")
    variables: dict[str, Any] = {}
    guide.run([recipe("pyro")], variables)
    y = variables["y"].numpy()

    def integrand(scale: float) -> float:
        data = stats.multivariate_normal(np.zeros(4), scale**2 * np.eye(4) + 100.0)
        return data.pdf(y) * stats.gamma(2).pdf(scale)

    truth = math.log(integrate.quad(integrand, 0, 60, epsabs=0, limit=200)[0])
    assert abs(z_score(variables["found"], truth)) < 4
