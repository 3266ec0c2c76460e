"""Checks whether a deployment is already up on a Redis before a local stack uses it."""

from fairlane.client.deployment import Deployment
from fairlane.config.settings import Settings
from fairlane.core.errors import FairlaneError, LocalStackError

BEATS_MISSED = 3
"""A worker that has missed so many heartbeats counts as gone, so that a killed one blocks nothing."""


def require_unused(settings: Settings, url: str) -> None:
    """Raise `LocalStackError` if a scheduler leads or workers are alive on a Redis that is reachable."""
    there = settings.model_copy(update={"redis": settings.redis.model_copy(update={"url": url})})
    try:
        found = _who(there)
    except (FairlaneError, ValueError):
        return  # the stack reports errors of that server
    if found:
        remedy = "--join adds processes to it, --redis URL uses another server, `fairlane workers` shows it"
        raise LocalStackError("up", f"a Fairlane is up already on this Redis: {found}. {remedy}")


def _who(settings: Settings) -> str:
    """``"a scheduler leads, 2 workers are alive"``; empty if there is neither."""
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
