"""Log lines and the metrics endpoint that scheduler, workers and client share.

Every process uses it; it imports `core`, `model` and `config`.
"""
