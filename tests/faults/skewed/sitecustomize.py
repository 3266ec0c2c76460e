"""Shifts the wall clock of a Python process by ``SKEW_SECONDS``; the monotonic clock stays as it is."""

import datetime
import os
import time

_SHIFT = float(os.environ.get("SKEW_SECONDS", "0"))  # noqa: TID251 - the process is not ours yet

if _SHIFT:
    _time, _time_ns, _datetime = time.time, time.time_ns, datetime.datetime

    class _Shifted(_datetime):
        @classmethod
        def now(cls, tz=None):
            return _datetime.now(tz) + datetime.timedelta(seconds=_SHIFT)

        @classmethod
        def utcnow(cls):
            return cls.now(datetime.UTC).replace(tzinfo=None)

    datetime.datetime = _Shifted
    time.time = lambda: _time() + _SHIFT
    time.time_ns = lambda: _time_ns() + int(_SHIFT * 1e9)
