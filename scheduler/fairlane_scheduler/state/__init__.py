"""The leader's state: active runs, queued jobs, the server's time; and its background threads.

The other rooms of the scheduler use it; it imports none of them.
"""
