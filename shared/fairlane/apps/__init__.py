"""Applications on top of the client: archive, batch files, estimates, promptfoo configurations, reports.

Each brings its commands and is found through an entry point. None imports another, and no other room
imports them.
"""
