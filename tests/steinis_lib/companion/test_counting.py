import torch

from steinis_lib.companion.counting import Counted
from steinis_lib.companion.problems.decoder import DecoderPosterior
from steinis_lib.companion.vae import mnist
from steinis_lib.companion.vae import networks as vae


def test_each_call_counts_its_particles_once():
    images = mnist.binarise(mnist.bundled()[:2])
    plain = DecoderPosterior(vae.bundled(10).decoder, images)
    counted = Counted(plain)
    z = torch.randn(2, 4, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    assert torch.equal(counted.log_prob(z), plain.log_prob(z)) and counted.n == 8
    assert torch.equal(counted.score(z), plain.score(z)) and counted.n == 16
    both = zip(
        counted.log_prob_and_score(z[:, :3]), plain.log_prob_and_score(z[:, :3]), strict=True
    )
    assert all(torch.equal(a, b) for a, b in both) and counted.n == 22
