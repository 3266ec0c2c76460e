"""Does what teams wrote in child processes with limits: scheduler and workers wait for results alone.

They use it; it imports `core`, `model`, `datasets`, `config` and `pipeline`.
"""
