"""Reads teams' inboxes: validates, admits, rejects, extends, pauses and cancels runs.

The service uses it; it imports `feed`, `dispatch`, `lanes` and `state`.
"""
