"""Datasets: rows read as a stream from files or iterables, and the compressed pages that they are stored in.

Client, scheduler, workers and store use it; it imports `core` and `model`.
"""
