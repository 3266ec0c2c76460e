"""The application that predicts a run's calls, tokens, cost and time before it is submitted.

``Client.estimate`` finds it through an entry point; it imports the client and the rooms below.
"""
