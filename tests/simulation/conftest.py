"""What holds for every simulation: few lines of log, and a client of Redis that costs little."""

from __future__ import annotations

from tests.support.direct import real_redis
from tests.support.quiet import quiet

__all__ = ["quiet", "real_redis"]
