"""TODO targets."""
