"""The scheduler: knows every limit and budget, and grants permits only to jobs that may start now.

`fairlane scheduler` and `fairlane up` start it; it imports all of `fairlane` except applications and tools.
"""
