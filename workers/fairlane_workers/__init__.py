"""The workers: execute what was granted, at once, and report."""
