"""Limits of a simulated provider: exact buckets, windows and queues, which admit or reject each request.

`model` and the rehearsal use them; they import only `config`.
"""
