"""Runs what teams wrote, as templates, in child processes with limits; scheduler and workers only wait.

They use it; it imports `core`, `model`, `datasets`, `config` and `pipeline`.
"""
