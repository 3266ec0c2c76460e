"""Reads promptfoo's files, and collects what is unsupported in them.

These are configurations, with their tests, prompts and providers, and results of earlier evaluations.

`evaluation`, `hooks`, `planning` and the command use it; it imports `programs`.
"""
