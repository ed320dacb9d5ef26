"""TODO extensions."""
