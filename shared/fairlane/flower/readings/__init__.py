"""Reads the data of the pages: lanes, runs, items and teams, with bounded work for each request.

Pages and task rows of `fairlane.flower` use it; it imports the client, `why` and views of the command line.
"""
