"""Reads promptfoo's files: configurations, tests, prompts and providers, and collects what is unsupported.

`evaluation`, `hooks` and `planning` use it; it imports `programs`.
"""
