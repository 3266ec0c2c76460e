"""Providers: one call to a model or a user's function, from a rendered request to an outcome.

`execution` uses it; it imports `functions` and `transport`.
"""
