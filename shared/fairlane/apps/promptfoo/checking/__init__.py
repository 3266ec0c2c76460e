"""Reads a test's assertions, and checks an output by those that need no model.

`planning` and `scoring` use it; it imports `reading`, `grading`, `subjects` and `programs`.
"""
