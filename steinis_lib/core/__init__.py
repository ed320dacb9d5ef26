"""What all parts of the library share: the shape of algorithms, checks, generators, files.

It exports nothing; `load_state` and `save_state` are in `steinis_lib` itself.
"""
