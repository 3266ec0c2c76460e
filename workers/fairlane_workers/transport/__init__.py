"""How bytes get to a provider and back: connections shared, nothing sent twice, every fault named."""

from fairlane_workers.transport.faults import TransportError, UnusableSettingError
from fairlane_workers.transport.http1 import PIECE_BYTES
from fairlane_workers.transport.proxy import with_credentials
from fairlane_workers.transport.reply import Reply
from fairlane_workers.transport.transport import Transport

__all__ = [
    "PIECE_BYTES",
    "Reply",
    "Transport",
    "TransportError",
    "UnusableSettingError",
    "with_credentials",
]
