"""What the scheduler and its clients change on runs: requests, admission, feeding, early ends, archiving.

Scheduler, clients and the archive use it; it imports the room `write` around it, and what that imports.
"""
