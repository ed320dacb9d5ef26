import pytest
import torch

from steinis_lib import IMQ, RBF, Gaussian
from steinis_lib.companion.sections.s7_extensions.affine import Linear
from steinis_lib.stein import maps
from steinis_lib.stein.maps import StepMap, build


@pytest.fixture
def step_map(generator):
    def make(d, step_size, kernel=None):
        leaders, scores = (torch.randn(8, d, generator=generator) for _ in "ab")
        return StepMap(leaders, 2 * scores, kernel or RBF(bandwidth=1.3), step_size)

    return make


@pytest.mark.parametrize("d", [1, 2, 3, 6, 20])
@pytest.mark.parametrize("kernel", [RBF(bandwidth=1.3), IMQ(bandwidth=1.3)])
def test_exact_log_det_is_that_of_the_map(step_map, d, kernel, generator):
    t = step_map(d, 0.3, kernel)
    y = torch.randn(5, d, generator=generator)
    moved, log_abs_det, positive = t.with_log_det(y)
    torch.testing.assert_close(moved, t(y))
    jacobian = torch.func.vmap(torch.func.jacrev(lambda u: t(u.unsqueeze(0))[0]))(y)
    sign, expected = torch.linalg.slogdet(jacobian)
    torch.testing.assert_close(log_abs_det, expected)
    assert torch.equal(positive, sign > 0)


def test_first_order_error_falls_as_epsilon_squared(step_map, generator):
    """det(I + εA) - Π(1 + ε a_kk) = -ε² Σ_{i<j} a_ij a_ji + O(ε³): the constant too."""
    y = torch.randn(6, 4, generator=generator)
    t = step_map(4, 1.0)
    _, a = t.kernel.field(y, t.leaders, t.scores, "full")
    second = -torch.stack([a[:, i, j] * a[:, j, i] for i in range(4) for j in range(i)]).sum(0)
    for epsilon in (1e-3, 5e-4):
        fine = StepMap(t.leaders, t.scores, t.kernel, epsilon)
        exact = fine.with_log_det(y, "exact")[1].exp()
        first = fine.with_log_det(y, "first-order")[1].exp()
        torch.testing.assert_close((exact - first) / epsilon**2, second, atol=0.05, rtol=0.05)


@pytest.mark.parametrize(("step_size", "form"), [(0.1, "first-order"), (0.100001, "exact")])
def test_switch_at_the_papers_step_size(step_map, step_size, form, generator):
    t = step_map(3, step_size)
    y = torch.randn(5, 3, generator=generator)
    switched, expected = t.with_log_det(y, "switch")[1], t.with_log_det(y, form)[1]
    assert torch.equal(switched, expected)
    other = "exact" if form == "first-order" else "first-order"
    assert not torch.equal(switched, t.with_log_det(y, other)[1])


@pytest.mark.parametrize("determinant", ["exact", "first-order"])
def test_folds_are_found_where_the_map_turns_back(step_map, determinant):
    t = step_map(1, 8.0)
    y = torch.linspace(-3, 3, 601).unsqueeze(-1)
    _, _, positive = t.with_log_det(y, determinant)
    slope = torch.gradient(t(y)[:, 0], spacing=0.01)[0]
    assert 0 < (~positive).sum() < 601
    assert ((slope <= 0) == ~positive).float().mean() > 0.99


def test_step_sizes_may_differ_between_problems(generator):
    target = Gaussian.isotropic(torch.ones(2))
    leaders, y = (
        torch.randn(3, 6, 2, generator=generator),
        torch.randn(3, 4, 2, generator=generator),
    )
    steps = torch.tensor([0.1, 0.2, 0.4])
    together = build(target, leaders, RBF(), steps).with_log_det(y)
    for i in range(3):
        alone = build(target, leaders[i], RBF(), float(steps[i])).with_log_det(y[i])
        torch.testing.assert_close(together[0][i], alone[0])
        torch.testing.assert_close(together[1][i], alone[1])


@pytest.mark.parametrize("kernel", [RBF(bandwidth=1.3), Linear()])
def test_a_large_batch_goes_in_pieces_and_gives_the_same(kernel, generator, monkeypatch):
    y, leaders, scores = (torch.randn(2, 5, n, 3, generator=generator) for n in (4, 8, 8))
    steps = 0.1 + torch.rand(2, 5, generator=generator)
    t = StepMap(leaders, scores, kernel.fit(leaders), steps)
    whole, sizes = t.with_log_det(y), []
    monkeypatch.setattr(maps, "JACOBIANS", 3 * 4 * 3**2)  # of three problems

    def watched(a):
        sizes.append(len(a))
        return log_abs_det(a)

    log_abs_det = maps.log_abs_det
    monkeypatch.setattr(maps, "log_abs_det", watched)
    for a, b in zip(t.with_log_det(y), whole, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b)
    assert sizes == [3, 3, 3, 1]


def test_no_problems_have_no_determinants():
    nothing = torch.zeros(0, 4, 3)
    moved, log_abs_det, positive = StepMap(nothing, nothing, RBF(1.3), 0.1).with_log_det(nothing)
    assert moved.shape == (0, 4, 3)
    assert log_abs_det.shape == positive.shape == (0, 4)


def test_unknown_determinant_is_refused(step_map):
    with pytest.raises(ValueError, match="'exact', 'first-order' or 'switch'"):
        step_map(1, 0.1).with_log_det(torch.zeros(1, 1), "diagonal")
