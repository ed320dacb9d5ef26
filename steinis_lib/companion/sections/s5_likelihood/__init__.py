"""TODO companion/sections/s5_likelihood."""
