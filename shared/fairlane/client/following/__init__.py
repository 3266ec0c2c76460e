"""The work behind a run's handle: reads records and streamed chunks, shows progress, computes client scores.

The client's handles use it; it imports the client's deployment, `views` and the rooms below the client.
"""
