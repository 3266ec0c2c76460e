"""A deployment in virtual time: the real scheduler and scripts, with simulated workers and providers.

Rehearsals, simulation tests and the zoo play on it; it imports the scheduler, `embedded` and the scenario.
"""
