"""Metrics and traces of a worker.

The engine uses it; it imports what `execution` lets it observe.
"""
