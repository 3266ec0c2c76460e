"""Parameters that a model does not support: reads which one a provider names, and leaves it out from then on.

The engine and the probe wrap each provider in `AdaptingProvider`; it imports only its siblings.
"""
