"""Runs Flower with Fairlane's pages, and ends the process soon after Flower has ended."""

import errno
import logging
import os
import socket
import sys
import threading
from typing import NoReturn

from flower.options import options

from fairlane.broker.app import make_app
from fairlane.client.deployment import Deployment
from fairlane.config.loader import load_settings
from fairlane.config.sections import LogSettings
from fairlane.flower.installing import install
from fairlane.flower.tasks import attempt_events
from fairlane.telemetry.logs import configure_logging

SHOW_TEXT = "--show-text"

STOP_S = 5.0
"""Seconds that threads get to end by themselves; supervisors often kill after ten."""

_ADDRESS_PROBLEMS = {
    errno.EADDRINUSE: "is taken: another process listens there. Choose another with --port",
    errno.EADDRNOTAVAIL: "is no address of this machine. Choose another with --address",
    errno.EACCES: "may not be used by this user. Choose a port above 1023 with --port",
}


def main(arguments: list[str]) -> None:
    """Add the pages to Flower and run it. Pages show texts only with ``--show-text``."""
    settings = load_settings()
    set_up_logging(settings.log)
    install(Deployment.open(settings), show_text=SHOW_TEXT in arguments)
    attempt_events.install()
    app = make_app(settings, "fairlane_flower")
    try:
        app.start(["flower", *(argument for argument in arguments if argument != SHOW_TEXT)])
    except OSError as error:
        refuse_place(error)
    finally:
        end_soon(code=0 if sys.exc_info()[0] in (None, SystemExit) else 1)


def set_up_logging(settings: LogSettings) -> None:
    """Log like every process: Tornado sets its own format only if none is set. Flower applies its option
    ``--logging`` later, so that overrides the level.
    """
    configure_logging(settings, f"flower@{socket.gethostname()}-{os.getpid()}")
    options.logging = settings.level
    logging.getLogger("flower.command").addFilter(_is_no_list_of_tasks)


def _is_no_list_of_tasks(record: logging.LogRecord) -> bool:
    """Flower lists Celery's own tasks at its start, a line each: Fairlane has one, on the workers."""
    return not str(record.msg).startswith("Registered tasks")


def end_soon(*, code: int) -> None:
    """End the process within `STOP_S`: Python waits for threads, and kombu's wait for a broker for ever."""
    timer = threading.Timer(STOP_S, os._exit, (code,))
    timer.daemon = True
    timer.start()


def refuse_place(error: OSError) -> NoReturn:
    """Exit with one line if Flower cannot listen at its address; re-raise any other error."""
    problem = _ADDRESS_PROBLEMS.get(error.errno or 0)
    if problem is None:
        raise error
    where = options.unix_socket or f"{options.address or '*'}:{options.port}"
    sys.exit(f"Flower: {where} {problem}")
