"""Explains why a lane, a run or a job waits, and estimates when it starts.

Client, command line and pages use it; it imports `store` and the rooms below it.
"""
