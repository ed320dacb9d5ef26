"""Numbers that notebooks show and claims are judged by, computed from stored results."""
