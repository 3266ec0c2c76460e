"""Evaluators: builders of their specs, scorers that run in Python, and what judges are asked and answer.

Pipeline, client and templates of runs use it; it imports `core` and `model`, and calls no provider.
"""
