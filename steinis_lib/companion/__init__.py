"""TODO companion."""
