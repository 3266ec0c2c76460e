"""One call over HTTP, for every protocol: sends the request, reads the reply, polls for one that is pending.

The registry builds its provider; it imports `dialect`, `classify`, `limits` and the transport.
"""
