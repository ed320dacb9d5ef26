"""What the tests of annealing, and of what builds on it, share."""

from dataclasses import replace

import torch
from torch import distributions as D

from steinis_lib import LogProb


def same(a, b):
    """Whether two states are equal bit for bit."""
    return all(torch.equal(getattr(a, f), getattr(b, f)) for f in a.__dataclass_fields__)


def z_ratio(sampler, target, generator, n=200, trials=200):
    """Mean of Ẑ/Z over independent trials of n particles, and its standard error."""
    sampler = replace(sampler, n_particles=n)
    state = sampler.run(sampler.init(generator, batch_shape=(trials,)))
    ratio = (sampler.importance_sample(state).log_z - target.log_z).exp()
    return ratio.mean(), ratio.std() / trials**0.5


def grid_expectation(skewed, f):
    """E_p[f] of the two-dimensional target `skewed`, by a sum over a grid."""
    grid = torch.linspace(-8, 8, 801)
    x = torch.cartesian_prod(grid, grid)
    return (skewed.log_prob(x) - skewed.log_z).exp() @ f(x) * 0.02**2


def chi_squared(mixture, x):
    """Pearson's statistic over 20 bins of equal width and two tails, 21 degrees of freedom."""
    edges = torch.linspace(-3, 4, 21)
    components = D.Normal(mixture.means[:, 0], mixture.scales[:, 0])
    cdf = components.cdf(edges.unsqueeze(-1)) @ mixture.log_weights.exp()
    expected = torch.cat([cdf[:1], cdf.diff(), 1 - cdf[-1:]]) * x.numel()
    counts = torch.bincount(torch.bucketize(x.flatten(), edges), minlength=22)
    return ((counts - expected).square() / expected).sum()


def moment_deviations(mixture, x):
    """Deviations of E[x], E[x²], E[x³] from the mixture's, in standard errors."""
    w, m, s = mixture.log_weights.exp(), mixture.means[:, 0], mixture.scales[:, 0]
    exact = torch.stack([w @ m, w @ (m**2 + s**2), w @ (m**3 + 3 * m * s**2)])
    powers = torch.stack([x.flatten() ** k for k in (1, 2, 3)])
    return (powers.mean(-1) - exact) / (powers.std(-1) / x.numel() ** 0.5)


def holed(mixture, value, edge=1.5):
    """The mixture with `value` for its log-density beyond the edge, and log Z before it."""

    def function(x):
        return torch.where(x[:, 0] > edge, value, mixture.log_prob(x))

    components = D.Normal(mixture.means[:, 0], mixture.scales[:, 0])
    z = components.cdf(torch.tensor(edge)) @ mixture.log_weights.exp()
    return LogProb(function, 1), z.log()
