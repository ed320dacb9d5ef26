"""TODO companion/sections/s3_adaptive_is."""
