import copy
import math

import pytest
import torch

from steinis_lib import SteinIS
from steinis_lib.companion.adagrad import AdaGradSteinIS
from steinis_lib.companion.diverging import LossyRun
from steinis_lib.companion.method_readings import along_transitions, readings
from steinis_lib.companion.settings import Setting
from steinis_lib.core.checks import NotFiniteError, check_finite
from steinis_lib.stein.kernels import RBF
from steinis_lib.targets.base import Gaussian

START = Gaussian.isotropic(torch.zeros(2, dtype=torch.float64), 2.0)
STEP = 0.8
SHIFTED = torch.tensor([0.5, -1.0], dtype=torch.float64)
SIZES = {"n_leaders": 9, "n_followers": 7}


def gaussians(*scales):
    """One Gaussian per problem; with so large a step the narrow ones diverge."""
    factors = torch.tensor(scales, dtype=torch.float64)[:, None, None] * torch.eye(2).double()
    return Gaussian(SHIFTED.expand(len(scales), 2), factors)


def started(target, sampler=SteinIS, **options):
    steinis = sampler(target, START, kernel=RBF(), step_size=STEP, **SIZES, **options)
    generator = torch.Generator().manual_seed(5)
    return steinis, steinis.init(generator, batch_shape=target.mean.shape[:-1])


def test_the_others_go_on_as_if_the_diverging_problem_were_not_there():
    steinis, state = started(gaussians(1.0, 1e-4, 0.7))
    with pytest.raises(FloatingPointError):
        steinis.run(state, 200)
    run = LossyRun(steinis, state)
    run.advance(199)
    before, info = run.step()
    assert run.lost.tolist() == [False, True, False]
    assert int(before.transition) + 1 == int(run.state.transition) == 200
    assert info.log_abs_det.shape == (3, 7)
    for i, scale in ((0, 1.0), (2, 0.7)):
        alone, _ = started(gaussians(scale))
        one = alone.start(
            state.leaders[i : i + 1], state.followers[i : i + 1], state.log_q[i : i + 1]
        )
        end = alone.run(one, 200)
        for name in ("leaders", "followers", "log_q"):
            there = getattr(run.state, name)[i]
            torch.testing.assert_close(there, getattr(end, name)[0], rtol=1e-9, atol=1e-9)
        assert torch.isfinite(run.importance_sample().log_z[i])


def test_nothing_is_lost_where_nothing_diverges():
    steinis, state = started(gaussians(1.0, 0.7))
    run = LossyRun(steinis, state)
    run.advance(30)
    end = steinis.run(state, 30)
    assert not run.lost.any()
    assert torch.equal(run.state.followers, end.followers)
    assert torch.equal(run.state.log_q, end.log_q)


def test_a_problem_with_no_others_raises():
    target = Gaussian(SHIFTED, 1e-4 * torch.eye(2).double())
    run = LossyRun(*started(target))
    with pytest.raises(FloatingPointError, match="smaller step size"):
        run.advance(200)


def test_sums_of_squares_begin_again_too():
    """AdaGrad does not diverge by itself, so one of its problems is made to."""
    steinis, state = started(gaussians(1.0, 0.7), AdaGradSteinIS)
    run = LossyRun(steinis, state)
    run.advance(3)
    error = NotFiniteError("made")
    error.particles = torch.zeros(2, 9, dtype=torch.bool)
    error.particles[1, 4] = True
    kept = run.state
    run._lose(error)
    assert run.state.squares.tolist() == [float(kept.squares[0]), 0.0]
    assert torch.equal(run.state.leaders[0], kept.leaders[0])
    assert torch.equal(run.state.leaders[1], state.leaders[1])
    assert int(run.state.transition) == 3
    assert run.lost.tolist() == [False, True]


class Broken(Gaussian):
    """The second problem has no weights, except at the followers `fine`."""

    fine = None

    def log_prob(self, x):
        values = super().log_prob(x)
        if self.fine is None or not torch.equal(x[1], self.fine):
            values[1] = torch.nan
        return values


def broken():
    whole = gaussians(1.0, 0.7)
    target = Broken(whole.mean, whole.scale_tril)
    run = LossyRun(*started(target))
    run.advance(2)
    return target, run


def test_a_problem_without_weights_is_lost():
    target, run = broken()
    first = started(target)[1].followers
    target.__dict__["fine"] = first[1]
    sample = run.importance_sample()
    assert run.lost.tolist() == [False, True]
    assert torch.equal(run.state.followers[1], first[1])
    assert not torch.equal(run.state.followers[0], first[0])
    assert math.isfinite(sample.log_z[0])


def test_a_problem_without_weights_from_the_first_state_on_is_refused():
    _, run = broken()
    with pytest.raises(NotFiniteError):
        run.importance_sample()


def test_a_lost_problem_has_no_estimate():
    setting = Setting(STEP, 0.0, None, None)
    found = readings(
        "steinis", gaussians(1.0, 1e-4), START, setting, (1, 200),
        torch.Generator().manual_seed(5), batch_shape=(2,), **SIZES,
    )  # fmt: skip
    dataset = along_transitions({
        r.n_transitions: r.or_nothing({
            "log_z": r.sample.log_z,
            "ess": r.sample.ess,
            "pareto_k": r.sample.pareto_k,
            "variance": r.sample.particles.var(-2).mean(-1),
            "n_folds": r.steinis[1].n_folds,
        })
        for r in found
    })  # fmt: skip
    at_end = dataset.sel(transitions=200)
    assert bool(dataset.log_z.sel(transitions=1).notnull().all())
    assert dataset.log_z.sel(transitions=1).min() > -math.inf
    assert math.isfinite(at_end.log_z[0])
    assert at_end.log_z[1] == -math.inf
    assert at_end.ess[1] == 0.0
    assert at_end.pareto_k[1] == math.inf
    assert bool(at_end.variance.isnull()[1])
    assert dataset.n_folds.dtype.kind == "i"


def test_the_error_says_which_particles():
    x = torch.zeros(2, 3, 1)
    x[1, 2] = torch.inf
    with pytest.raises(NotFiniteError, match=r"a leader is \[inf\] at particle \(1, 2\)") as caught:
        check_finite(x, "a leader")
    assert caught.value.particles.nonzero().tolist() == [[1, 2]]
    assert str(copy.copy(caught.value)) == str(caught.value)
