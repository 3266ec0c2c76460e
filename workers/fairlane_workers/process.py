"""Wires a worker process: Celery application, engine, and the signals that start and stop it."""

import gc
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from celery import Celery, signals
from celery.exceptions import SecurityWarning
from celery.worker.control import control_command

from fairlane.broker.app import TASK_NAME, make_app
from fairlane.config.modules import not_found, search_here
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.core.errors import ConfigurationError, FairlaneError
from fairlane.core.events import Event
from fairlane.model.job import Attempt
from fairlane.telemetry.log_stream import drain_streams, install_log_streams
from fairlane.telemetry.logs import configure_logging, get_logger
from fairlane_workers.engine import Engine
from fairlane_workers.intake.lane_queues import CONSUMER, consumer_step, stopping_step
from fairlane_workers.intake.loop_pool import POOL, TaskPool

log = get_logger("worker")

FAILED = 2
"""The exit code of a worker that cannot start or continue."""


def essential(receiver: Callable[..., None]) -> Callable[..., None]:
    """A receiver of a signal whose error ends the process: Celery itself would log it and continue."""

    @wraps(receiver)
    def call(*args: Any, **given: Any) -> None:
        try:
            receiver(*args, **given)
        except FairlaneError as error:
            print(error, file=sys.stderr)  # noqa: T201 - in words, as before the start
            raise SystemExit(FAILED) from error
        except Exception as error:
            log.exception(Event.WORKER_FAILED)
            raise SystemExit(FAILED) from error

    return call


class WorkerProcess:
    """The application that ``celery worker`` runs, and the engine beside it."""

    def __init__(self, settings: Settings, secrets: WorkerSecrets, name: str | None = None) -> None:
        self._settings = settings
        self._secrets = secrets
        self._controller: Any = None
        self._logging_is_set = False
        self._warm = False
        self.engine = Engine(settings, secrets, name, end=_stop_warmly)
        self.app = self._make_app()
        self._connect_signals()

    @property
    def exit_code(self) -> int:
        """The process' exit code once its Celery worker has ended: 0 only after a warm stop.

        Celery itself returns 1 after SIGINT.
        """
        return 0 if self._warm else int(getattr(self._controller, "exitcode", None) or 0)

    def run(self, *, task_events: bool = False) -> int:
        """Run until a signal ends the process; its exit code. ``task_events``: send events, for Flower.

        Celery's command line would do the same, and import Flower and a prompt's editor for it.
        """
        warnings.filterwarnings("default", category=SecurityWarning)  # of root: it is no error, by no flag
        self._set_up_logging()
        name = self.engine.name
        worker = self.app.Worker(
            hostname=name if "@" in name else f"{name}@{socket.gethostname()}",
            concurrency=self._settings.worker.slots,
            task_events=task_events,
            quiet=self._settings.log.format == "json",  # its banner is a dozen lines that are no JSON
            # Workers need not know each other, and each reconnection would leak descriptors.
            without_gossip=True,
            without_mingle=True,
        )
        worker.start()
        return self.exit_code

    def _make_app(self) -> Celery:
        app: Any = make_app(self._settings, "fairlane_workers")
        engine = self.engine

        def attempt(**message: Any) -> str:
            """Execute the attempt that a message names; its lease in Redis says whether it may still run."""
            return engine.start_attempt(Attempt.from_message(message)).result()

        app.task(name=TASK_NAME, shared=False)(attempt)
        app.tasks[TASK_NAME].start = engine.start_attempt
        app.conf.worker_pool = POOL
        app.conf.worker_consumer = CONSUMER
        app.steps["consumer"].add(consumer_step(engine.queues))
        app.steps["worker"].add(stopping_step(engine.begin_stop))
        made: Celery = app
        return made

    def _connect_signals(self) -> None:
        receivers: dict[Any, Callable[..., None]] = {
            signals.setup_logging: self._set_up_logging,
            signals.celeryd_after_setup: self._start,
            signals.worker_ready: _ready,
            signals.worker_shutting_down: self._begin_stop,
            signals.worker_shutdown: self._close,
        }
        for signal_, receiver in receivers.items():
            signal_.connect(essential(receiver), weak=False)
        control_command(name="shutdown")(_shut_down)

    def _set_up_logging(self, **_: Any) -> None:
        """Does nothing; as a receiver of this signal it keeps Celery from setting up logging."""
        if self._logging_is_set:
            return
        self._logging_is_set = True
        install_log_streams()
        configure_logging(self._settings.log, self.engine.name)

    def _start(self, instance: Any, **_: Any) -> None:
        self._controller = instance
        if not (isinstance(instance.pool_cls, type) and issubclass(instance.pool_cls, TaskPool)):
            pool = getattr(instance.pool_cls, "__module__", str(instance.pool_cls))
            raise ConfigurationError(
                "--pool", pool, "calls share one event loop a process", "Leave --pool out."
            )
        for connection, name in self._secrets.missing.items():
            known = self._settings.connections.get(connection)
            kind = place.kind if known and (place := known.key_place) else "variable"
            log.warning(Event.CREDENTIAL_MISSING, connection=connection, **{kind: name})
        if self._settings.worker.modules:
            search_here()
        for module in not_found(self._settings.worker.modules):
            log.warning(Event.MODULE_MISSING, module=module, folder=str(Path.cwd()))
        self.engine.start()

    def _begin_stop(self, how: str = "", **_: Any) -> None:
        self._warm = how == "Warm"
        self.engine.begin_stop()

    def _close(self, **_: Any) -> None:
        self.engine.close()
        drain_streams()  # after SIGHUP Celery replaces the program, without an exit


def _ready(**_: Any) -> None:
    """Stop warmly at SIGQUIT, too, at which Celery abandons its tasks and returns 0.

    Also freezes permanent objects: garbage collections that scan them delay calls by 100 ms.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGQUIT, signal.getsignal(signal.SIGTERM))
    gc.freeze()


def _shut_down(_state: Any, **_: Any) -> None:
    """Celery's remote command: stop as at SIGTERM.

    Celery's own command sends no signal: it waits for calls without a limit, and gets more of them meanwhile.
    """
    _stop_warmly()


def _stop_warmly() -> None:
    """End this process with the signal that its supervisor sends."""
    os.kill(os.getpid(), signal.SIGTERM)
