"""How a streamed reply is cut into events, one file a format."""
