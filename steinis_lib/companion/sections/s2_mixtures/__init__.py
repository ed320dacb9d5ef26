"""TODO companion/sections/s2_mixtures."""
