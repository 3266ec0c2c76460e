"""The Celery application and broker options that scheduler, workers and Flower share.

Those three use it; it imports `model` and `config`.
"""
