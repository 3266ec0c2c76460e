"""Periodic work beside dispatching: recovery of lapsed leases, archive, budgets, lane samples, sweeping.

The service uses it; it imports `feed` and `state`.
"""
