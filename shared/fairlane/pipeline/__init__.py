"""Renders the call of each job, and decides its record and the evaluations that follow. Pure functions.

Scheduler, workers, client and laboratory use it; it imports `core`, `model`, `templates` and `evaluators`.
"""
