"""Small examples for the foundations and method pages: their numbers and figures."""
