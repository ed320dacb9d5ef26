"""Targets with an independent truth of log Z, and what runs `estimate_log_z` and others on them."""
