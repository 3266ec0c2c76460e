"""The zoo: providers that a seed generates, played in virtual time against Fairlane and its peers.

``make zoo`` and simulation tests use it; it imports `rehearsal`, `simulator` and the workers' header reader.
"""
