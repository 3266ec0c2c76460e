"""Reads how providers and libraries refuse: error bodies, Retry-After, exceptions, and their own words.

Answers, limits and protocols use it; it imports nothing else of the providers.
"""
