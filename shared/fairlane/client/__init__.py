"""The Python client: submits runs, watches them, reads their records.

Applications and the command line use it; it imports the rooms below and finds `apps` through entry points.
"""
