"""Seeded schedules of faults against real processes, and a checker of their histories: see ``__main__``."""
