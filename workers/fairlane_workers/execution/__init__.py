"""Executes one attempt: claim, gather, call, decide, report.

The engine uses it; it imports `providers`.
"""
