"""Which tests, prompts and providers of a configuration run: ``--filter-…``.

The command, `planning` and `reading` use it; it imports none of the folders beside it.
"""
