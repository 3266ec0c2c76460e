"""Programs of others that make the same calls at the same provider, each a process of its own."""
