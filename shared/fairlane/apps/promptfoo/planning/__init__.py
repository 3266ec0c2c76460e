"""Plans the runs of an evaluation: tests become rows, rows get their prompts, and providers share runs.

`evaluation`, `answering` and `scoring` use it; it imports `reading` and all that assertions need.
"""
