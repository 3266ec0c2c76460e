"""Connections to providers: their settings and the checks of these, presets of known providers, their lanes.

Settings, scheduler and workers use it; it imports `core` and `model`.
"""
