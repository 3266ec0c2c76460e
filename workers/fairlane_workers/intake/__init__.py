"""Takes attempts off the lanes' queues: Celery consumers, queue subscriptions and the pool.

The process and the bridge use it; it imports the shared broker and no other room of the workers.
"""
