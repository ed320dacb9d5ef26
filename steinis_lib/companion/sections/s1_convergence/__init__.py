"""TODO companion/sections/s1_convergence."""
