"""HTTP to providers: pooled connections, no request sent twice, every fault named.

`providers` uses it; it imports nothing of the workers.
"""

from fairlane_workers.transport.departure import Departure, Departures, PermitExpiredError, UsualDelay
from fairlane_workers.transport.faults import (
    SHORTAGE,
    TooLargeError,
    TransportError,
    UnusableSettingError,
    is_shortage,
)
from fairlane_workers.transport.pool import PIECE_BYTES
from fairlane_workers.transport.proxy import with_credentials
from fairlane_workers.transport.reply import Reply
from fairlane_workers.transport.transport import Transport

__all__ = [
    "PIECE_BYTES",
    "SHORTAGE",
    "Departure",
    "Departures",
    "PermitExpiredError",
    "Reply",
    "TooLargeError",
    "Transport",
    "TransportError",
    "UnusableSettingError",
    "UsualDelay",
    "is_shortage",
    "with_credentials",
]
