"""Lets the worker of a team's own Celery application take the calls of some lanes."""

import os
import socket
import threading
from collections.abc import Sequence
from typing import Any

from celery import Celery, signals

from fairlane.config.loader import load_settings
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.core.errors import ConfigurationError
from fairlane.core.events import Event
from fairlane.model.lane import FUNCTIONS
from fairlane.telemetry.logs import get_logger, log_through_the_application
from fairlane_workers.engine import Engine
from fairlane_workers.functions.catalog import AppTasks
from fairlane_workers.intake.lane_consumer import LaneConsumer

log = get_logger("bridge")

GRACE_STEP_S = 5.0  # time after the grace period for the reports of requeued attempts


class Bridge:
    """An engine and a consumer of lanes' queues, beside an application's worker. Made by `serve`."""

    def __init__(self, app: Celery, lanes: Sequence[str], settings: Settings) -> None:
        self._app, self._lanes, self._settings = app, tuple(lanes), settings
        self._engine: Engine | None = None
        self._consumer: LaneConsumer | None = None
        self._closing = threading.Lock()

    def connect(self) -> None:
        """Start and stop with the application's worker."""
        signals.worker_ready.connect(self._ready, weak=False)
        signals.worker_shutting_down.connect(self._shutting_down, weak=False)
        signals.worker_shutdown.connect(self._shut_down, weak=False)

    def start(self) -> None:
        """Start engine and consumer, for the tasks that the application has by now."""
        if self._engine is not None:
            return
        log_through_the_application(self._settings.log)
        tasks = AppTasks(self._app)
        name = f"{self._app.main or 'app'}@{socket.gethostname()}-{os.getpid()}"
        settings = self._own(tasks)
        self._engine = Engine(settings, WorkerSecrets(), name, tasks, end=self._leave)
        self._engine.start()
        self._consumer = LaneConsumer(settings, self._engine.queues, self._engine.start_attempt)
        self._consumer.start()
        log.info(Event.LANES_SERVED, app=self._app.main, lanes=list(settings.worker.lanes))

    def begin_stop(self) -> None:
        """Take no new calls; requeue attempts that do not end within the grace period."""
        if self._engine is not None and self._consumer is not None and not self._consumer.should_stop:
            self._consumer.stop()
            self._engine.begin_stop()

    def close(self) -> None:
        """Wait for attempts in flight, up to the grace period, and close the engine.

        A second caller waits until the first has closed it.
        """
        with self._closing:
            engine, consumer = self._engine, self._consumer
            self._engine = self._consumer = None
            if engine is None or consumer is None:
                return
            consumer.close(self._settings.worker.shutdown_grace_seconds + GRACE_STEP_S)
            engine.close()

    def _leave(self) -> None:
        """Stop serving while the application's worker continues; in a thread, since the engine's loop must
        not wait.
        """
        self.begin_stop()
        threading.Thread(target=self.close, name="fairlane-leave", daemon=True).start()

    def _own(self, tasks: AppTasks) -> Settings:
        """The settings of a worker that calls only this application's tasks."""
        configured = self._lanes or tasks.names()
        lanes = tuple(f"{FUNCTIONS}:{lane}" for lane in configured)
        worker = self._settings.worker.model_copy(update={"lanes": lanes, "modules": tasks.names()})
        return self._settings.model_copy(update={"connections": {}, "worker": worker})

    def _ready(self, sender: Any = None, **_: Any) -> None:
        if sender is None or sender.app is self._app:
            self.start()

    def _shutting_down(self, **_: Any) -> None:
        self.begin_stop()

    def _shut_down(self, **_: Any) -> None:
        self.begin_stop()
        self.close()


def serve(
    app: Celery,
    lanes: Sequence[str] = (),
    *,
    slots: int | None = None,
    settings: Settings | None = None,
) -> Bridge:
    """Have the worker of ``app`` take calls of ``lanes``: those that ``client.call(…, lane=…)`` names.

    Call it where the application is made; it has an effect only in a worker process. Tasks run by name, on
    ``slots`` threads of the worker's main process, beside its own pool. Without ``lanes`` the worker takes
    the calls of its tasks that name no lane. Without ``settings`` they come from file and environment, as for
    `Client()`. Raises `ConfigurationError`.
    """
    if isinstance(lanes, str):
        raise ConfigurationError("lanes", lanes, "is a text, not a list", f"Give [{lanes!r}].")
    chosen = settings or load_settings()
    if slots is not None:
        if slots < 1:
            raise ConfigurationError("slots", slots, "must be at least 1")
        chosen = chosen.model_copy(update={"worker": chosen.worker.model_copy(update={"slots": slots})})
    bridge = Bridge(app, lanes, chosen)
    bridge.connect()
    return bridge
