"""Which tests, prompts and providers of a configuration run: ``--filter-…``.

The command, `matching` and `reading` use it; it imports none of the folders beside it.
"""
