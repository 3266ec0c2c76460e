"""Checks an output without asking a model, and says which kinds of assertions there are.

Rows and scoring use it; it imports `grading`, `subjects` and `programs`.
"""
