"""Prompt templates over a row: a Jinja2 sandbox with bounded work, equal in every process.

`pipeline`, `config` and the client use it; it imports `core`.
"""
