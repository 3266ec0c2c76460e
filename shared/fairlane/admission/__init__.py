"""May this attempt start now, and what did its outcome teach us?"""
