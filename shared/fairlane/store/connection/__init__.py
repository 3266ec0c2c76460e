"""Opens Redis: one set of timeouts and retries, TLS, Sentinel and Cluster, and readable errors.

The other rooms of the store and every process use it; it imports `core`, `config` and the key names.
"""
