"""TODO baselines."""
