"""What holds for every test of scripts: a client of Redis that costs little."""

from __future__ import annotations

from tests.support.direct import real_redis

__all__ = ["real_redis"]
