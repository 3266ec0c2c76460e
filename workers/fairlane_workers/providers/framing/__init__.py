"""Splits streamed replies into events, one file per format.

`dialect` and `protocols` use it; it imports `answer`.
"""
