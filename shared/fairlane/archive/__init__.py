"""The archive: finished runs in a database, as long as it is kept, read as if they were still in Redis."""
