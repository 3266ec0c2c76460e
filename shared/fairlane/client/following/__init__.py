"""What a handle does while its run goes on: reads records, shows progress, and notices that nothing happens.

The client's handles use it; it imports the client's deployment and the rooms below the client.
"""
