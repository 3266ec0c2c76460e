"""Asks models about outputs that exist: in rounds of runs, as many as an assertion needs."""
