"""Runs an embedded Redis and other child processes that never outlive their parent.

`local`, `lab` and tests use it; it imports `core`, `config`, `broker` and the store's connections.
"""
