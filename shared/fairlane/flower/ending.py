"""Ends Flower's process: soon after SIGTERM, and with one line where it cannot listen."""

from __future__ import annotations

import errno
import os
import sys
import threading
from typing import NoReturn

from flower.options import options

STOP_S = 5.0
"""Seconds that threads get to end by themselves; supervisors often kill after ten."""

_PLACES = {
    errno.EADDRINUSE: "is taken: another process listens there. Choose another with --port",
    errno.EADDRNOTAVAIL: "is no address of this machine. Choose another with --address",
    errno.EACCES: "may not be used by this user. Choose a port above 1023 with --port",
}


def end_soon(*, code: int) -> None:
    """End the process within `STOP_S`: Python waits for threads, and kombu's wait for a broker for ever."""
    timer = threading.Timer(STOP_S, os._exit, (code,))
    timer.daemon = True
    timer.start()


def refuse_place(error: OSError) -> NoReturn:
    """End with one line if Flower cannot listen where it should; raise the error if it is of another kind."""
    problem = _PLACES.get(error.errno or 0)
    if problem is None:
        raise error
    where = options.unix_socket or f"{options.address or '*'}:{options.port}"
    sys.exit(f"Flower: {where} {problem}")
