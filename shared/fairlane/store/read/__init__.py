"""Reads of Redis for people and clients: runs, records, sessions, waiting jobs, the whole deployment.

Client, `why`, command line and pages use it; it imports the other rooms of the store, and changes nothing.
"""
