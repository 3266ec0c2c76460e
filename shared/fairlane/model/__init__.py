"""The domain: runs, items, jobs, attempts, outcomes, lanes, tokens, prices, as data and pure functions.

Every room above uses it; it imports `core` alone and never opens Redis, a file or a socket.
"""
