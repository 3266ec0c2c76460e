"""The workers: claim granted attempts, make their calls at once, and report the outcomes.

`fairlane worker` and `fairlane up` start them; they import all of `fairlane` except applications and tools.
"""
