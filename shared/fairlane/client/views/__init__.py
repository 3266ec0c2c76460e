"""What a person looks at: summaries, forecasts, lanes and comparisons, as values and as tables for notebooks.

The client's handles use it when they are asked, and applications; it imports the store's views and the model.
"""
