"""Fairlane's pages in Flower: lanes, runs and teams. Needs the extra ``flower``."""
