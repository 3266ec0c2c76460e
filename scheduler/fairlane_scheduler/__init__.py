"""The scheduler: knows every budget and hands out only what may start now.

`fairlane scheduler` and `fairlane up` start it; it imports `fairlane` but its applications and tools.
"""
