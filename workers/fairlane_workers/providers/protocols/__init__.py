"""One file a protocol: what is sent, and how what comes back is read."""
