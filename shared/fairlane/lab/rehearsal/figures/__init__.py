"""Figures of a rehearsal against the provider's true limits, as a table, a page and a picture.

The players of scenarios use it; it imports recordings, scenarios and the simulated provider.
"""
