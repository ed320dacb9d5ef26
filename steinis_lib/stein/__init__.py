"""TODO stein."""
