"""Translates events for Flower: the outcome of an attempt decides the state of its task."""

import threading
from collections.abc import Mapping
from typing import Any

from celery.events import EventReceiver
from flower import app as flower_app
from flower.events import Events

from fairlane.core.events import Event
from fairlane.flower.tasks.task_rows import is_attempt
from fairlane.model.outcome import Aborted, RateLimited, Success
from fairlane.telemetry.logs import get_logger

AGAIN_FIRST_S, AGAIN_MOST_S = 1.0, 8.0
"""The first and the longest pause before a new connection to an absent broker; each doubles."""

RETURNED_SLOT = "Pending"
"""The result that a worker reports when an attempt continues without its slot: it has not ended."""

log = get_logger("flower")


def as_shown(event: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The event for Flower; ``None`` to drop it. For Celery every reported attempt is a success. For Flower a
    failed call is a failed task, a 429 a retried one, and a cancelled or requeued attempt a revoked one.
    """
    if event["type"] != "task-succeeded" or not is_attempt(event["uuid"]):
        return event
    outcome = str(event.get("result", "")).strip("'\"")
    if outcome == RETURNED_SLOT:
        return None
    if outcome in ("", Success.__name__):
        return event
    if outcome == Aborted.__name__:
        return {**event, "type": "task-revoked"}
    ended = "task-retried" if outcome == RateLimited.__name__ else "task-failed"
    return {**event, "type": ended, "exception": outcome}


class AttemptEvents(Events):
    """Flower's thread that receives events; reconnects every few seconds while the broker is away."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._over = threading.Event()

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Hand an event to Flower's loop."""
        shown = as_shown(event)
        if shown is not None:
            super().on_event(shown)

    def run(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Receive events until `stop`."""
        pause_s = AGAIN_FIRST_S
        while not self._over.is_set():
            try:
                with self.capp.connection() as connection:
                    receiver = EventReceiver(connection, handlers={"*": self.on_event}, app=self.capp)
                    pause_s = AGAIN_FIRST_S
                    receiver.capture(limit=None, timeout=None, wakeup=True)
            except Exception as error:  # noqa: BLE001 - each transport has errors of its own
                log.warning(Event.BROKER_UNREACHABLE, error=str(error), again_s=pause_s)
                self._pause(pause_s)
                pause_s = min(2 * pause_s, AGAIN_MOST_S)

    def _pause(self, seconds: float) -> None:
        self._over.wait(seconds)

    def stop(self) -> None:
        """End the thread's pauses, and let Flower save its state."""
        self._over.set()
        super().stop()


def install() -> None:
    """Make Flower receive events by `AttemptEvents`. Call it once in a process, before Flower starts."""
    flower_app.Events = AttemptEvents
