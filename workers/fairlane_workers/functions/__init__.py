"""Users' functions: which ones a worker may run, their arguments, and their threads.

`providers` uses it; it imports nothing of the workers.
"""
