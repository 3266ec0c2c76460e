"""Verbs that change Redis, each one Lua script or one transaction, and the reads that those verbs need.

Scheduler, workers and clients use it; it imports the rest of the store but `read`, and `model` and `config`.
"""
