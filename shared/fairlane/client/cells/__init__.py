"""One client for several deployments, beyond the load that one Redis carries.

Each has its own connections and lanes. `fairlane.Cells` is the entry; it imports the client and rooms below.
"""
