"""Turns active runs into queued jobs, a page of items at a time.

Intake, upkeep and the service use it; it imports `dispatch`, `lanes` and `state`.
"""
