"""The answer to one request: gathered piece by piece, masked for listeners, and classified as an outcome.

`http`, protocols and `framing` use it; it imports `contract`, `errors` and `limits`.
"""
