"""How lanes detect their limits: an hour of each scenario in virtual time, as a table, a page and pictures.

``make simulate`` and tests use it; it imports the laboratory's rooms.
"""
