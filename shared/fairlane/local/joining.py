"""Looks whether a deployment is up already on the Redis that a local stack is to use."""

from fairlane.client.deployment import Deployment
from fairlane.config.settings import Settings
from fairlane.core.errors import FairlaneError, LocalStackError

BEATS_MISSED = 3
"""A worker that has missed so many heartbeats is gone: one that was killed should not be in the way."""


def require_nobody(settings: Settings, url: str) -> None:
    """Raise `LocalStackError` if a scheduler leads there, or workers are alive. No answer is no objection."""
    there = settings.model_copy(update={"redis": settings.redis.model_copy(update={"url": url})})
    try:
        found = _who(there)
    except (FairlaneError, ValueError):
        return  # the stack reports what is wrong with that server
    if found:
        remedy = "--join adds processes to it, --redis URL uses another server, `fairlane workers` shows it"
        raise LocalStackError("up", f"a Fairlane is up already on this Redis: {found}. {remedy}")


def _who(settings: Settings) -> str:
    """``"a scheduler leads, 2 workers are alive"``; empty where nobody is."""
    deployment = Deployment.open(settings)
    try:
        with deployment.answering():
            now_ms, silent_ms = deployment.now_ms(), BEATS_MISSED * settings.worker.beat_seconds * 1000
            workers = sum(now_ms - beat.beat_ms <= silent_ms for beat in deployment.beats())
            leads = deployment.is_led(now_ms)
    finally:
        deployment.close()
    words = ["a scheduler leads"] if leads else []
    if workers:
        words.append("1 worker is alive" if workers == 1 else f"{workers} workers are alive")
    return ", ".join(words)
