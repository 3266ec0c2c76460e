"""The laboratory: a simulated provider over HTTP, and rehearsals of a whole deployment in virtual time.

`fairlane.testing`, tests and two commands use it; it imports neither `apps`, `flower`, `top` nor `local`.
"""
