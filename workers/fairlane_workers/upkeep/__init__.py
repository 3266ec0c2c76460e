"""A worker's upkeep besides its attempts: heartbeats, draining, health, credential fingerprints.

The engine uses it; it imports `execution` and `functions`.
"""
