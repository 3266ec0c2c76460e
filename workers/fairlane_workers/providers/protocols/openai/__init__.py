"""Protocols of OpenAI and its like: chat completions, embeddings and responses, at Azure and at Mistral, too.

The protocols' entry points name them; they import what all protocols stand on, and Anthropic's protocol.
"""
