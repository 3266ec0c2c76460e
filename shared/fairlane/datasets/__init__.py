"""Datasets: reads rows as a stream from files or iterables, and stores them in compressed pages.

Client, scheduler, workers and store use it; it imports `core` and `model`.
"""
