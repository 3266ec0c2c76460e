"""Scores outputs where ``fairlane eval`` runs: verdicts on records, and their tally."""
