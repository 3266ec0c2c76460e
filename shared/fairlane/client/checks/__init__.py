"""What a submission is checked for before anything is written: first rows, parameters, connections.

`Client.submit` calls them; they import the deployment's context and rooms below the client.
"""
