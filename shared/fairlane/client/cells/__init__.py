"""Several deployments behind one client: past what one Redis carries, each has its own connections and lanes.

Programs that use `fairlane.Cells` enter here; it imports the client and the rooms below it.
"""
