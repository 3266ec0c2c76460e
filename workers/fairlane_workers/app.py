"""The workers' Celery application for ``celery -A fairlane_workers.app worker`` and for Flower."""

from fairlane.config.loader import load_secrets, load_settings
from fairlane_workers.process import WorkerProcess

_settings = load_settings()
_process = WorkerProcess(_settings, load_secrets(_settings))

app = _process.app
