"""Metrics and health of a scheduler: counters, samples of the deployment, and the server that shows them.

The service and the process use it; it imports `state`.
"""
