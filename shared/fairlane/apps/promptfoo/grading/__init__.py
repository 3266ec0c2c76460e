"""Asks models about outputs that exist: finds the models, and asks in rounds of runs.

`checking`, `planning` and `scoring` use it; it imports `subjects`, `reading` and `programs`.
"""
