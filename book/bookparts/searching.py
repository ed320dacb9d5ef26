"""Words under which a page should be found although it says them rarely, or never."""

from __future__ import annotations

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

KEYWORDS = {
    "index": ("SteinIS", "normalising constant", "log Z"),
    "method": ("Stein variational gradient descent", "particles", "Jacobian determinant"),
    "foundations": ("annealed importance sampling", "leapfrog", "HAIS", "AIS"),
    "glossary": ("definitions", "nats", "ESS", "KSD"),
    "guide": ("evidence", "marginal likelihood", "normalising constant"),
    "sections/01_gmm_convergence": ("convergence", "KL divergence"),
    "sections/02_gmm_estimation": ("mixtures", "normalising constant"),
    "sections/03_adaptive_is": ("adaptive importance sampling", "population Monte Carlo"),
    "sections/04_rbm": ("RBM", "partition function", "restricted Boltzmann machine"),
    "sections/05_vae": (
        *("VAE", "variational autoencoder", "decoder", "evidence", "marginal likelihood"),
        *("log-likelihood", "MNIST"),
    ),
    "sections/06_running_time": ("speed", "running time"),
    "sections/07_beyond": ("estimate_log_z", "evidence", "marginal likelihood"),
    "benchmarks": ("speed", "benchmark"),
    "clusters": ("Dask", "cluster"),
    "cite": ("BibTeX", "citation"),
    "reproduce": ("hardware", "memory", "disk"),
}
"""Page → words. A page that does not exist is passed over."""

GLOSSARY = "glossary"


class AddKeywords(SphinxTransform):
    """Put a page's keywords into the book's index, which the search looks at first."""

    default_priority = 100  # before Sphinx collects the entries of the index

    def apply(self, **kwargs: object) -> None:
        """Add one node with all entries at the beginning of the page."""
        if self.env.docname == GLOSSARY:
            self.step_back()
        words = KEYWORDS.get(self.env.docname, ())
        title = next(iter(self.document.findall(nodes.section)), None)
        if not words or title is None:
            return
        target = title["ids"][0]
        entries = [("single", word, target, "main", None) for word in words]
        title.insert(1, addnodes.index(entries=entries, inline=False))

    def step_back(self) -> None:
        """Let the search show the glossary's terms after the pages that are about them."""
        for node in self.document.findall(addnodes.index):
            node["entries"] = [(*entry[:3], "", entry[4]) for entry in node["entries"]]
