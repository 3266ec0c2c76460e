"""Which tests, prompts and providers of a configuration run: ``--filter-…``.

The command, `planning` and `reading` use it; of the folders beside it, it imports the tests of `reading`.
"""
