"""Reads the rate limits that providers report, as `fairlane.model.hints.Hints`.

`providers` uses it; it imports only its siblings.
"""
