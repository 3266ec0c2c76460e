"""What watches a scheduler: counts, a look at the whole now and then, and the server that tells of both."""
