"""TODO companion/sections/s7_extensions."""
