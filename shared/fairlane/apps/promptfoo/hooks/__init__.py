"""``extensions`` of a configuration: hooks that are called before and after an evaluation and its tests."""
