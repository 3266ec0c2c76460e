"""The zoo: providers that a seed generates, played in virtual time against Fairlane and its peers.

``make zoo`` and tests use it; it imports the laboratory's rooms and the workers' header reader.
"""
