import pytest
import torch
from scipy.optimize import minimize

from steinis_lib.baselines.simplex import project_euclidean, project_kl


@pytest.mark.parametrize("floor", [0.0, 0.02, 0.12])
@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_projections_agree_with_slsqp(floor, spread, generator):
    y = spread * torch.randn(8, 6, generator=generator)
    near, close = project_euclidean(y, floor), project_kl(y, floor).exp()
    assert (close >= floor - 1e-15).all()
    assert (near >= floor).all()

    def solve(f, gradient):
        simplex = {"type": "eq", "fun": lambda pi: pi.sum() - 1}
        return minimize(
            f,
            torch.full((6,), 1 / 6).numpy(),
            jac=gradient,
            method="SLSQP",
            bounds=[(max(floor, 1e-12), 1)] * 6,
            constraints=simplex,
            options={"ftol": 1e-15, "maxiter": 500},
        )

    for i in range(8):
        row = y[i].numpy()
        best = solve(
            lambda pi, row=row: ((pi - row) ** 2).sum(), lambda pi, row=row: 2 * (pi - row)
        )
        torch.testing.assert_close(near[i], torch.tensor(best.x), atol=1e-5, rtol=0)
        best = solve(
            lambda pi, row=row: float(torch.tensor(pi) @ (torch.tensor(pi).log() - row)),
            lambda pi, row=row: torch.tensor(pi).log().numpy() + 1 - row,
        )
        torch.testing.assert_close(close[i], torch.tensor(best.x), atol=1e-5, rtol=0)


@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_projections_keep_what_is_feasible_and_survive_extremes(floor, generator):
    pi = floor + (1 - 6 * floor) * torch.rand(5, 6, generator=generator).log_softmax(-1).exp()
    torch.testing.assert_close(project_euclidean(pi, floor), pi)
    torch.testing.assert_close(project_kl(pi.log() + 7, floor).exp(), pi)
    huge = torch.tensor([1e154, -1e154, 0.0, 1.0, 1e153, -1e10])
    vertex = torch.tensor([1.0] + [0.0] * 5) * (1 - 6 * floor) + floor
    torch.testing.assert_close(project_euclidean(huge, floor), vertex)
    torch.testing.assert_close(project_kl(huge, floor).exp(), vertex)
    dropped = project_kl(torch.tensor([0.0, -torch.inf, 0.0]), floor).exp()
    torch.testing.assert_close(dropped, torch.tensor([0.5 - floor / 2, floor, 0.5 - floor / 2]))
