"""TODO companion/sections/s4_rbm."""
