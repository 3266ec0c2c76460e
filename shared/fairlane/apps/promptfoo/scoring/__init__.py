"""Scores outputs where ``fairlane eval`` runs: verdicts on records, their tally, and hooks that see them.

`evaluation` uses it; it imports `planning` and all that assertions need.
"""
