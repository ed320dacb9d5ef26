"""TODO companion/sections."""
