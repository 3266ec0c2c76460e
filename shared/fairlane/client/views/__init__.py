"""Views for people: summaries, forecasts, lanes and comparisons, as values and as tables for notebooks. The
client's handles and applications use it; it imports the store's views and the model.
"""
