"""Foundations of all rooms: errors, event names, clocks, redaction and the base of settings' sections.

Every other room uses it; it imports no other room of Fairlane.
"""
