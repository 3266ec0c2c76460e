"""Periodic work besides dispatching: recovery of leases, early ends, archive, budgets, samples, sweeping.

The service uses it; it imports `feed` and `state`.
"""
