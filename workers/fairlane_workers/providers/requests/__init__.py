"""Reads chats, tools and parameters of a run, which have OpenAI's form, for protocols with other forms.

Protocols use it; it imports `dialect` alone.
"""
