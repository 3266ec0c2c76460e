"""What a person looks at: runs, summaries, lanes and comparisons as values and as tables for notebooks.

The client's handles use it when they are asked; it imports the store's views and the model.
"""
