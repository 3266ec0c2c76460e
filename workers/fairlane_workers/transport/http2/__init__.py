"""HTTP/2, for transports that ask for it: many calls on each connection. Needs the extra ``http2``."""
