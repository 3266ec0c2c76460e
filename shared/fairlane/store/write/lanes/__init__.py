"""Verbs on lanes, and the reads that they need: a lane's state, its history, and its learned limits.

Scheduler, command line and pages use it; it imports the verbs on attempts and permits, and the audit.
"""
