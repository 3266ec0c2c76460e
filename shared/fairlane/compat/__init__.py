"""Functions of other tools under their own signatures, run by Fairlane.

Users' programs import it; it imports the client.
"""
