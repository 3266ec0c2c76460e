"""Settings: models of every section, presets of providers, and the loader with its error messages.

Every process reads its settings here once; it imports `core`, `model` and `templates`.
"""
