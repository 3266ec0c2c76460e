"""Which tests, prompts and providers of a configuration run: the options ``--filter-…``, and earlier results.

The command and `planning` use it; of the folders beside it, it imports `reading`.
"""
