"""Replacements for functions of other tools, with the same signatures, that run on Fairlane.

Users' programs import it; it imports the client.
"""
