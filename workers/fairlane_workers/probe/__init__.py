"""``python -m fairlane_workers.probe``: makes one call on a connection and reports the result, as JSON.

The command line starts it as a process; it imports `providers` and `transport`.
"""
