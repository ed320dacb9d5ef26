"""TODO companion/sections/s6_running_time."""
