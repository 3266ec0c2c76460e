"""Submits runs: takes the arguments, checks them, writes the rows and asks the scheduler to start.

`Client` and its variants use it; it imports the run's handle and the client's deployment.
"""
