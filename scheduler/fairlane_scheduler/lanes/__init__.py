"""Creates lanes, and decides which connections share one.

Intake and feed use it; it imports `state`.
"""
