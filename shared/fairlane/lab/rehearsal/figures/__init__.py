"""Figures of a rehearsal against the provider's true limits.

The players of scenarios use it; it imports recordings, scenarios and the simulated provider.
"""
