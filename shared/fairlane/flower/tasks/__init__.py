"""Adapts Flower's pages of tasks to attempts: their columns, and the states from their outcomes.
`fairlane.flower` installs it, and its pages of items list attempts; it imports the readings and the model.
"""
