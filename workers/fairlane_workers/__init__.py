"""The workers: execute what was granted, at once, and report.

`fairlane worker` and `fairlane up` start them; they import `fairlane` but its applications and tools.
"""
