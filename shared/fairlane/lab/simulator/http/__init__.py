"""The HTTP server of the simulated provider: receives requests and transmits answers.

The command line and `fairlane.testing` use it; it imports every other room of the simulator.
"""
