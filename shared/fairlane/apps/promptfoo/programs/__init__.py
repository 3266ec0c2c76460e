"""Runs a team's JavaScript and Python in child processes with limits, where ``fairlane eval`` runs."""
