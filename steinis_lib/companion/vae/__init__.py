"""TODO companion/vae."""
