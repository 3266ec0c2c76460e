"""``extensions`` of a configuration: hooks that are called before and after an evaluation and its tests.

`evaluation`, `planning` and `scoring` call them; they import `reading` and `programs`.
"""
