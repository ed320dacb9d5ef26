"""What all parts of the library share: checks, random generators, the loop, files.

It exports nothing; `load_state` and `save_state` are in `steinis_lib` itself.
"""
