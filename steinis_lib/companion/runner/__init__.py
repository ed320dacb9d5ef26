"""TODO companion/runner."""
