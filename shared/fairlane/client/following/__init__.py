"""What a run's handle does: reads records and streamed pieces, shows progress, and sends records on.

The client's handles use it; it imports the client's deployment, `views` and the rooms below the client.
"""
