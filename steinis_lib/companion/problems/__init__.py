"""The paper's own test problems: a bent mixture, a restricted Boltzmann machine, a decoder.

They are targets as in `steinis_lib.targets`, with exact log Z, moments or draws where these exist.
"""
