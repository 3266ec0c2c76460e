"""The vocabulary of all protocols: a call, a reply, a problem, and the headers and frames that carry them.

`protocols`, `model` and `http` use it; it imports only `limits` and `config`.
"""
