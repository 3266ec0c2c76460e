"""Grades outputs by models: finds the models, and submits the graders' questions as runs, round by round.

`checking`, `planning` and `scoring` use it; it imports `subjects`, `reading` and `programs`.
"""
