"""Runs templates, evaluators and other input of teams in child processes with limits. Scheduler and workers
use it; it imports `core`, `model`, `datasets`, `config` and `pipeline`.
"""
