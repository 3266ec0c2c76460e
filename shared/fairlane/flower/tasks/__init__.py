"""Flower's own pages of tasks, in Fairlane's words, and the states that they give to attempts.

`fairlane.flower` installs them and its pages of items list attempts; they import the readings and the model.
"""
