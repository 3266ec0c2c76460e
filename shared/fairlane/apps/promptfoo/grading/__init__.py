"""Asks models about outputs that exist: in rounds of runs, as many as an assertion needs.

Checks, rows and scoring use it; it imports `subjects`, `reading` and `programs`.
"""
