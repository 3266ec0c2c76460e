"""Runs a team's JavaScript and Python in child processes with limits, where ``fairlane eval`` runs.

All folders beside it use it; it imports none of them.
"""
