"""The demonstration: 1,319 grade-school questions, two lanes with different limits, a judge on a third.

`fairlane demo` uses it; it imports the client, and neither the scheduler nor the workers.
"""
