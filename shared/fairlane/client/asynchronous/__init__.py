"""The client for applications with an event loop: the blocking client in a few threads, pauses in the loop.

It imports the blocking client and asyncio; nothing imports it but applications.
"""
