"""Authenticates requests to providers, one file a scheme.

`providers` uses it; it imports `transport`.
"""
