"""Evaluators: builders of their specs, scorers in Python, prompts of judges, and parsers of their answers.

Pipeline, client and templates of runs use it; it imports `core` and `model`, and calls no provider.
"""
