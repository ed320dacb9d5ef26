import math

import numpy as np
import pytest
import torch
import xarray as xr

from steinis_lib import Gaussian, GaussianMixture, LogProb, SteinIS
from steinis_lib.companion.counting import Counted
from steinis_lib.companion.parameters import ParameterError
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.runner.experiment import compute_chunk, stream, with_pilots
from steinis_lib.companion.sections.s2_mixtures import problem as gmm_estimation
from steinis_lib.companion.sections.s3_adaptive_is import problem as adaptive_problem
from steinis_lib.companion.sections.s4_rbm import problem as rbm_partition
from steinis_lib.companion.sections.s5_likelihood import problem as vae_likelihood
from steinis_lib.companion.sections.s7_extensions import images, modes, plane
from steinis_lib.companion.sections.s7_extensions.experiment import EXPERIMENT
from steinis_lib.companion.sections.s7_extensions.hais_run import HAISRun
from steinis_lib.companion.sections.s7_extensions.images import ENDS, hybrids
from steinis_lib.companion.sections.s7_extensions.other_scores import run_annealed
from steinis_lib.companion.sections.s7_extensions.settings import IMAGE_VARIANTS, Beyond
from steinis_lib.companion.vae import networks as vae
from steinis_lib.importance import ImportanceSample
from steinis_lib.targets.mixtures import FullCovarianceMixture

TINY = {
    "n_repeats": 2,
    "mixture_trials": 7,
    "trials_per_chunk": 4,
    "n_leaders": 10,
    "n_pool": 40,
    "n_transitions": 4,
    "n_followers": 100,
    "n_held_out": 20,
    "n_components": 4,
    "n_draws": 60,
    "n_iterations": 2,
    "rbm_dims": (5,),
    "rbm_trials": 2,
    "rbm_exploring": 20,
    "rbm_draws": 200,
    "latent_dims": (10,),
    "n_images": 3,
    "images_per_chunk": 2,
    "image_repeats": 2,
    "image_evaluations": 1200,
    "tuning_images": 2,
    "truth_chains": 10,
    "truth_transitions": 3,
}


@pytest.fixture(scope="module")
def tiny():
    return Beyond.of_profile("paper", TINY)


def run(p, label, number=0, records=None):
    """Compute a chunk of a cell, as the engine does."""
    (cell,) = (cell for cell in EXPERIMENT.cells(p) if cell.label == label)
    chunk = EXPERIMENT.chunks(p, cell)[number]
    return compute_chunk(cell, p, with_pilots(cell, chunk, records or {}))


@pytest.fixture
def records():
    """Results of pilots in which the last candidate but one is the best."""
    found = {}
    for kind in ENDS:
        merit = np.zeros((1, len(hybrids(kind, 10))))
        merit[0, -2] = 1.0
        found[f"vae-tuning-{kind}-10"] = xr.Dataset({"merit": (("trial", "candidate"), merit)})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDS)
def test_pilots_judge_all_candidates_by_the_standard_error(tiny, kind, monkeypatch):
    errors, (cls,) = [], {type(h.end) for h in hybrids(kind, 10)}
    real = cls.finish

    def spy(end, posterior, q, evaluations, generator):
        found = real(end, posterior, q, evaluations, generator)
        errors.append((posterior.images.shape[0], found["standard_error"]))
        return found

    monkeypatch.setattr(cls, "finish", spy)
    merit = run(tiny, f"vae-tuning-{kind}-10").merit
    assert merit.dims == ("trial", "candidate")
    assert all(n == 2 * 4 == len(e) for n, e in errors)  # pilot images, four times each
    expected = [-float(e.mean()) for _, e in errors]
    assert merit.values.tolist() == [pytest.approx(expected)] and len(expected) == 12
    assert max(expected) < 0 and np.isfinite(expected).all()


def test_cells_are_all_variants_of_all_problems(tiny):
    pilots, cells = EXPERIMENT.stages(tiny)
    counts = {f"warped-{v}": 2 for v in plane.ON_WARPED} | {"rbm-5": 2}
    counts |= {f"{m}-{v}": 7 for m in ("easy", "hard") for v in plane.ON_MIXTURES}
    counts |= {f"vae-{v}-10": 3 for v in ("truth", *IMAGE_VARIANTS)}
    assert {cell.label: cell.n_trials for cell in cells} == counts
    assert {cell.label for cell in pilots} == {"vae-tuning-hais-10", "vae-tuning-bridge-10"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "label",
    [*(f"warped-{v}" for v in plane.ON_WARPED), *(f"hard-{v}" for v in plane.ON_MIXTURES), "rbm-5",
     *(f"vae-{v}-10" for v in ("truth", *IMAGE_VARIANTS))],
)  # fmt: skip
def test_all_numbers_of_a_chunk_are_finite(tiny, records, label):
    found = run(tiny, label, 0, records)
    assert all(np.isfinite(found[n].values).all() for n in found.data_vars if n != "pareto_k")
    assert found.seconds.attrs["units"] == "s"


@pytest.fixture
def seen(monkeypatch):
    """The targets that variants in the plane are run on."""
    targets, real = [], plane.run_variant

    def spy(variant, target, *arguments, **settings):
        targets.append(target)
        return real(variant, target, *arguments, **settings)

    monkeypatch.setattr(plane, "run_variant", spy)
    return targets


def test_mixtures_are_those_of_section_2(tiny, seen):
    found = run(tiny, "hard-mixture", 1)
    assert found.trial.values.tolist() == [4, 5, 6] and found.sizes["trial"] == 3
    theirs = gmm_estimation.GMMEstimation()
    for chunk, target in enumerate(seen):  # these trials are in the section's chunks 0 and 1
        generator = stream(theirs.seed, gmm_estimation.NAME, "hard-targets", chunk)
        expected = gmm_estimation.mixtures(theirs, "hard", 5, generator)
        assert torch.equal(target.means, expected.means)
    assert len(seen) == 2


def test_errors_are_those_of_the_mixture_of_the_same_number(tiny, monkeypatch):
    """A variant that returns exact draws, many of them: errors are small for each trial."""

    def exact(variant, target, q0, sizes, n, generator, *, batch_shape):
        x = target.sample((*batch_shape, 40_000), generator)
        none = torch.zeros(batch_shape, dtype=torch.int64)
        costs = dict.fromkeys(("scores", "densities", "folds", "seconds"), none)
        return ImportanceSample(
            x, torch.arange(float(len(x))).unsqueeze(-1).expand(-1, 40_000)
        ), costs

    monkeypatch.setattr(plane, "run_variant", exact)
    found = run(tiny, "easy-pool", 1)
    assert (abs(found.error) < 0.1).all()
    assert found.log_z.values.tolist() == pytest.approx([4.0, 0.0, 1.0])  # the places of 4, 5, 6


def test_the_bent_mixture_is_that_of_section_3(tiny, seen):
    run(tiny, "warped-fixed")
    expected = adaptive_problem.warped(adaptive_problem.AdaptiveComparison(), "main")
    x = torch.randn(9, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(seen[0].log_prob(x), expected.log_prob(x))


def test_models_are_those_of_section_4(monkeypatch):
    """Trial 7 of the section is the third model of its second chunk."""
    p = Beyond.of_profile("paper", TINY | {"rbm_trials": 8})
    seen = []
    real = modes.at_modes

    def spy(counted, *arguments):
        seen.append(counted.target)
        return real(counted, *arguments)

    monkeypatch.setattr(modes, "at_modes", spy)
    found = run(p, "rbm-5", 7)
    theirs = rbm_partition.RBMPartition()
    expected = rbm_partition.models(theirs, "standard", 5, theirs.trials_per_chunk, 1)
    assert torch.equal(seen[0].coupling, expected.coupling[2])
    assert found.likeliest.values[0] == pytest.approx(
        float(expected.state_log_probs[2].amax(-1).exp())
    )


def test_images_are_those_of_section_5():
    model = vae.bundled(10)
    expected, _ = vae_likelihood.problem(
        vae_likelihood.VAELikelihood(), model, "prior", range(1, 3)
    )
    posterior = images.posterior_of(10, range(1, 3), 3)
    assert posterior.images.shape == (6, 784)
    assert torch.equal(posterior.images[[0, 1, 2]], expected[[0]].expand(3, -1))
    assert torch.equal(posterior.images[3:], expected[[1]].expand(3, -1))


def test_evaluations_for_an_image_stay_within_the_budget(tiny, records, monkeypatch):
    spent = 0
    for name in ("log_prob", "score", "log_prob_and_score"):
        real = getattr(DecoderPosterior, name)

        def counted(self, z, real=real):
            nonlocal spent
            before = spent
            result = real(self, z)
            spent = before + math.prod(z.shape[:-1])  # once, though one may call another
            return result

        monkeypatch.setattr(DecoderPosterior, name, counted)
    for variant in IMAGE_VARIANTS:
        spent = 0
        run(tiny, f"vae-{variant}-10", 1, records)  # one image, two runs
        assert 0.9 * 2 * 1200 < spent <= 2 * 1200, variant


def test_evaluations_of_the_rbm_are_counted(tiny):
    found = run(tiny, "rbm-5").isel(trial=0)
    parts = sum(int(found[n]) for n in ("exploring", "climbing", "fitting", "weighing"))
    assert int(found.evaluations) == parts + 200
    assert int(found.exploring) == modes.N_EXPLORERS * (20 + 1)
    annealing = modes.ANNEALING
    chains = modes.N_CHAINS * (annealing.n_transitions * annealing.n_leapfrog + 1)
    assert int(found.evaluations_annealed) == parts + chains
    chains = modes.N_CHAINS * modes.BRIDGE_TRANSITIONS * modes.BRIDGE_LEAPFROGS
    assert int(found.evaluations_bridged) == parts + 200 + chains


def test_evaluations_of_an_annealing_run_are_those_that_are_made(skewed, wide, generator):
    counted = Counted(skewed)
    _, calls = HAISRun(4, 3, 0.2).run(counted, wide, 20, generator, batch_shape=(5,))
    assert 5 * calls == counted.n == 5 * 20 * (4 * 3 + 1)


@pytest.mark.parametrize("kind", ENDS)
def test_there_are_twelve_candidates_of_each_kind_for_the_images(kind):
    assert len(set(hybrids(kind, 20))) == 12
    assert len(hybrids(kind, 50)) == 8  # leaders must be more than d
    assert all(0.9 * 4000 < h.used(4000) <= 4000 for h in hybrids(kind, 20))


def test_candidates_say_what_they_use():
    """A flow of 15 transitions with 60 leaders leaves 3100."""
    anneal, bridge = (hybrids(kind, 20)[0] for kind in ("hais", "bridge"))
    assert anneal.used(4000) == 900 + 50 * (20 * 3 + 1)
    assert bridge.used(4000) == 900 + 1033 + 20 * 50 * 2


@pytest.mark.parametrize("variant", plane.ON_WARPED)
def test_weights_are_exact(variant):
    """The mean of Ẑ over independent runs is Z = 1, in sigma units."""
    sizes = {"n_leaders": 60, "n_pool": 200, "n_components": 8, "n_draws": 600, "n_iterations": 5}
    p = Beyond.of_profile("paper", TINY | sizes)
    target = adaptive_problem.warped(adaptive_problem.AdaptiveComparison(), "easy")
    wide = adaptive_problem.start()
    wide = type(wide)(wide.mean, 1.5 * wide.scale_tril)
    generator = stream(0, "test", variant, 0)
    sample, costs = plane.run_variant(
        variant, target, wide, p.plane, 300, generator, batch_shape=(60,)
    )
    z = sample.log_z.exp().numpy()
    assert int(costs["folds"].sum()) == 0
    assert abs(z.mean() - 1) < 4 * z.std(ddof=1) / math.sqrt(60)
    assert z.std() < 0.3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rbm_dims": [20, 10]}, "rbm_dims: must rise strictly"),
        ({"latent_dims": [12]}, r"trained models are \(10, 20, 50\), none for \[12\]"),
        ({"n_pool": 10}, "n_pool: at least n_leaders"),
    ],
)
def test_nonsense_is_refused(given, message):
    with pytest.raises(ParameterError, match=message):
        Beyond.of_profile("quick", given)


def test_annealed_leaders_differ_from_fixed_ones_in_the_first_half_alone(monkeypatch):
    """One transition from each state of a plain run, with the sampler of either variant."""
    target = adaptive_problem.warped(adaptive_problem.AdaptiveComparison(), "main")
    q0, sizes = adaptive_problem.start(), Beyond.of_profile("paper", TINY).plane
    samplers, real = [], SteinIS.init

    def spy(sampler, *arguments, **settings):
        samplers.append(sampler)
        return real(sampler, *arguments, **settings)

    monkeypatch.setattr(SteinIS, "init", spy)
    for variant in ("fixed", "annealed"):
        plane.run_variant(
            variant, target, q0, sizes, 5, torch.Generator().manual_seed(1), batch_shape=(1,)
        )
    fixed, annealed = samplers
    assert fixed == annealed
    state = fixed.init(torch.Generator().manual_seed(1))
    for t in range(sizes.n_transitions):  # 4
        after, _ = fixed.step(state)
        other = run_annealed(annealed, state, 1, plane.half_schedule(sizes))
        assert torch.equal(after.followers, other.followers) == (t >= 1), t
        state = after


@pytest.mark.slow
@pytest.mark.parametrize("variant", [*plane.ON_MIXTURES, "fixed", "sobol", "reused", "annealed"])
def test_evaluations_in_the_plane_are_counted(tiny, skewed, wide, variant):
    """Each kind of call, for one problem, at a target that counts them."""
    calls = {"score": 0, "log_prob": 0}

    class Counting:
        dim = 2

        def log_prob(self, x):
            calls["log_prob"] += math.prod(x.shape[:-1])
            return skewed.log_prob(x)

        def score(self, x):
            calls["score"] += math.prod(x.shape[:-1])
            return skewed.score(x)

        def log_prob_and_score(self, x):
            calls["score"] += math.prod(x.shape[:-1])
            return skewed.log_prob_and_score(x)

    generator = stream(0, "test", variant, 0)
    _, costs = plane.run_variant(
        variant, Counting(), wide, tiny.plane, 30, generator, batch_shape=(3,)
    )
    assert costs["scores"].tolist() == [calls["score"] / 3] * 3
    assert costs["densities"].tolist() == [calls["log_prob"] / 3] * 3


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["mixture-hais", "mixture-maps-hais"])
def test_annealing_from_the_mixture_is_exact(variant, monkeypatch):
    """Ẑ, and Ẑ times expectations, over independent fits: their means, in sigma units.

    The fits are shifted and widened, and annealing is short: maps move particles, weights differ.
    """
    fit = plane.fit_mixture

    def poor(*arguments):
        q = fit(*arguments)
        return FullCovarianceMixture(
            q.log_weights, q.means + torch.tensor([0.4, -0.3]), 1.4 * q.scale_trils
        )

    monkeypatch.setattr(plane, "fit_mixture", poor)
    monkeypatch.setattr(plane, "FROM_MIXTURE", HAISRun(5, 2, 0.5))
    monkeypatch.setattr(plane, "THROUGH_MAPS", HAISRun(5, 2, 0.5))
    sizes = {"n_leaders": 60, "n_pool": 100, "n_held_out": 100, "n_components": 6, "n_draws": 400}
    p = Beyond.of_profile("paper", TINY | sizes | {"n_iterations": 4})
    lopsided = GaussianMixture(
        torch.tensor([0.5, 0.3, 0.2]).log(),
        torch.tensor([[-1.0, 0.5], [1.5, 1.0], [0.5, -2.0]]),
        torch.tensor([[1.0, 0.8], [0.7, 1.2], [0.9, 0.9]]),
    )
    target = LogProb(lambda x: lopsided.log_prob(x) + 0.7, 2)
    start = Gaussian.isotropic(torch.zeros(2), 1.5)
    runs, generator = 100, stream(0, "test", variant, 0)
    sample, costs = plane.run_variant(
        variant, target, start, p.plane, 60, generator, batch_shape=(runs,)
    )
    assert sample.log_w.var(-1).mean() > 0.02
    weights = (sample.log_w - 0.7).exp().unsqueeze(-1)
    for power, exact in enumerate((torch.ones(2), lopsided.mean, lopsided.second_moment)):
        found = (weights * sample.particles**power).mean(-2)
        sigma = found.std(0) / math.sqrt(runs)
        assert ((found.mean(0) - exact).abs() < 4 * sigma).all(), power
        assert power > 0 or (sigma < 0.01).all()
    assert int(costs["folds"].sum()) == 0


def test_maps_of_the_mixture_are_few_and_bring_it_nearer(skewed, wide, generator):
    """Weights before any annealing, of new draws: their mean log rises, and so KL falls."""
    sizes = {"n_leaders": 80, "n_pool": 300, "n_held_out": 300, "n_components": 2, "n_draws": 400}
    s = Beyond.of_profile("paper", TINY | sizes).plane
    mixture = plane.fit_mixture(skewed, wide, s, generator, (4,))
    inside, steps = plane.maps_from(mixture, skewed, s, generator, (4,))
    assert 1 <= len(inside.maps) <= steps <= plane.N_MAPS
    assert all((m.step_size > 0).any() for m in inside.maps)
    z = mixture.sample((4, 4000), generator)
    gain = inside.log_prob(z) - skewed.log_prob(z)  # both less the same log q_0
    assert (gain.mean(-1) > 4 * gain.std(-1) / 4000**0.5).all()
