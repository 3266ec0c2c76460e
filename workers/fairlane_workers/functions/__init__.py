"""Functions of users that workers run: which may be run, what they are given, on which thread."""
