"""Every error Fairlane raises, as one tree.

FairlaneError
├── ConfigurationError      a setting is wrong or unknown             field, value, remedy
├── SubmissionError         an argument of ``submit`` is wrong        field, value, row, remedy
├── TemplateError           a template does not compile or render     template_field, variable
├── RunNotFound             no such run, or it has expired            run_id
│   └── RunArchived         only a stub of it is left in Redis        run_id
├── LaneNotFound            no such lane                              lane
├── TargetNotFound          ``why`` was asked of what there is not     target, near
├── RunTimeout              ``wait`` gave up before the run ended      run_id, timeout
├── StoreUnavailable        Redis cannot be reached                   url
├── ArchiveUnavailable      the archive's database cannot be used     cause
├── RateLimited             a function of yours was told to slow down  retry_after
├── CallFailed              a call of a function ended without a result call, error, attempts
├── ScriptError             a script refused what it was given        script, code
└── LocalStackError         a local process did not come up           process, log
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Sequence
from datetime import timedelta


class FairlaneError(Exception):
    """Anything Fairlane raises on purpose. ``str(error)`` is written for the person who caused it."""


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 120
_SHORT.maxdict = _SHORT.maxlist = 8
_SHORT.maxlevel = 3

_LONGEST_WAIT_S = 366 * 86_400


def _tell(field: str, value: object, problem: str, remedy: str) -> str:
    try:
        shown = _SHORT.repr(value)
    except ValueError:  # an integer too long for Python to print
        shown = f"a very long {type(value).__name__}"
    return f"{field}: {problem} (got {shown}). {remedy}".rstrip()


class ConfigurationError(FairlaneError, ValueError):
    """A setting is wrong or unknown. Carries ``field``, ``value`` and ``remedy``."""

    def __init__(self, field: str, value: object, problem: str, remedy: str = "") -> None:
        super().__init__(_tell(field, value, problem, remedy))
        self.field, self.value, self.remedy = field, value, remedy


class SubmissionError(FairlaneError, ValueError):
    """An argument of ``submit`` is wrong. Nothing was written. ``row`` is 1-based where a row is at fault."""

    def __init__(
        self, field: str, value: object, problem: str, remedy: str = "", *, row: int | None = None
    ) -> None:
        where = field if row is None else f"{field}, row {row}"
        super().__init__(_tell(where, value, problem, remedy))
        self.field, self.value, self.remedy, self.row = field, value, remedy, row


class TemplateError(FairlaneError, ValueError):
    """A template does not compile, or a variable it needs is missing (then ``variable`` names it)."""

    def __init__(self, template_field: str, problem: str, variable: str | None = None) -> None:
        super().__init__(f"{template_field}: {problem}")
        self.template_field, self.variable = template_field, variable


class RunNotFound(FairlaneError, LookupError):
    """No run of that id for this team, or it finished long ago and has expired."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"no run {run_id!r}: it may have expired; `fairlane runs` lists what is there")
        self.run_id = run_id


class RunArchived(RunNotFound):
    """The run is in the archive, and Redis keeps no more than how it ended."""

    def __init__(self, run_id: str) -> None:
        FairlaneError.__init__(
            self, f"run {run_id!r} has been moved to the archive; set archive.url to the database to read it"
        )
        self.run_id = run_id


class LaneNotFound(FairlaneError, LookupError):
    """No lane of that name has been configured or used."""

    def __init__(self, lane: str, known: list[str] | None = None) -> None:
        listed = f"; known lanes: {', '.join(known)}" if known else ""
        super().__init__(f"no lane {lane!r}{listed}")
        self.lane = lane


class TargetNotFound(FairlaneError, LookupError):
    """``why`` was asked of something that is no lane, run or job. ``near`` are names that look like it."""

    def __init__(self, target: str, near: Sequence[str] = (), detail: str = "") -> None:
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        listed = "`fairlane lanes` and `fairlane runs` list what is there; a job is RUN/ITEM or RUN/ITEM/STEP"
        what = detail or listed
        super().__init__(f"no lane, run or job {target!r}{meant} ({what})")
        self.target, self.near = target, tuple(near)


class RunTimeout(FairlaneError, TimeoutError):
    """``wait(timeout=…)`` gave up; the run itself goes on."""

    def __init__(self, run_id: str, timeout: float) -> None:
        super().__init__(f"run {run_id} was not finished after {timeout:g} s; it goes on")
        self.run_id, self.timeout = run_id, timeout


class StoreUnavailable(FairlaneError, ConnectionError):
    """Redis cannot be reached at ``url`` (shown without its password)."""

    def __init__(
        self, url: str, cause: str, remedy: str = "Start one with `fairlane up`, or set redis.url"
    ) -> None:
        super().__init__(f"cannot reach Redis at {url}: {cause.rstrip('.')}. {remedy}")
        self.url = url


class RateLimited(FairlaneError):
    """For functions that run on workers to raise: whoever they asked said "too fast".

    The call is made again and costs no attempt; nothing starts on its lane for ``retry_after``, which is
    seconds or a `timedelta`, where that is known.
    """

    def __init__(self, message: str = "too fast", *, retry_after: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def retry_after_ms(self) -> int | None:
        """``retry_after`` in milliseconds, rounded up; ``None`` where it is no time to wait."""
        given = self.retry_after
        seconds = given.total_seconds() if isinstance(given, timedelta) else given
        if not isinstance(seconds, int | float) or not 0 <= seconds <= _LONGEST_WAIT_S:
            return None
        return math.ceil(seconds * 1000)


class CallFailed(FairlaneError):
    """A call of a function has no result. ``error`` says why; ``attempts`` is what it has spent."""

    def __init__(self, call: str, error: str, attempts: int = 0) -> None:
        super().__init__(f"call {call}: {error}")
        self.call, self.error, self.attempts = call, error, attempts

    def __reduce__(self) -> tuple[type[CallFailed], tuple[str, str, int]]:
        return CallFailed, (self.call, self.error, self.attempts)


class ArchiveUnavailable(FairlaneError, ConnectionError):
    """The archive's database cannot be reached, read or written. ``cause`` never tells its URL."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"cannot use the archive: {cause}")
        self.cause = cause


class ScriptError(FairlaneError):
    """A script was called with what it does not take; always a defect, never a user's mistake."""

    def __init__(self, script: str, code: str) -> None:
        super().__init__(f"script {script}: {code}")
        self.script, self.code = script, code


class LocalStackError(FairlaneError):
    """A process of the local stack did not come up; ``log`` is the file that says why."""

    def __init__(self, process: str, problem: str, log: str | None = None) -> None:
        super().__init__(f"{process}: {problem}" + (f" (see {log})" if log else ""))
        self.process, self.log = process, log
