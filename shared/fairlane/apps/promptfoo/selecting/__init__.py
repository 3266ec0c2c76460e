"""Which tests, prompts and providers of a configuration run: ``--filter-…``."""
