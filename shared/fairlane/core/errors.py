"""Every error that Fairlane raises on purpose, as one tree.

FairlaneError
├── ConfigurationError      a setting is wrong or unknown               field, value, remedy
├── SubmissionError         an argument of ``submit`` is wrong          field, value, row, remedy
│   ├── BatchFileError      lines of a batch file cannot be sent        problems
│   └── DatasetChanged      a dataset is not what a run read from it    field, value, remedy
├── UnsupportedError        a promptfoo configuration cannot be run     problems
├── TemplateError           a template does not compile or render       template_field, variable
├── RunNotFound             no such run, or it has expired              run_id
│   ├── RunArchived         Redis has only a stub of the run            run_id
│   └── RunLost             Redis lost a part of a submission           run_id
├── ResultsLost             Redis lost a part of a run that started     run_id
├── AmbiguousRun            several runs begin with the given id        matches
├── InboxFull               too many requests of the team wait          team, waiting
├── RunEnded                rows were added to a run that has ended     run_id, state
├── RunTimeout              ``wait`` gave up before the run ended       run_id, timeout
├── LaneNotFound            no such lane                                lane
├── WorkerNotFound          no such worker                              wanted, known
├── TargetNotFound          ``why`` was asked about an unknown name     target, near
├── CallFailed              a call of a function has no result          call, error, attempts
├── RateLimited             a function reports that it was throttled    retry_after
├── UnknownFormat           no such format of results
├── MissingExtra            an optional library is not installed        extra
├── NoTerminal              ``top`` has no terminal to draw in
├── StoreUnavailable        Redis cannot be reached                     url
│   ├── OldSchema           Redis has keys of an earlier version        prefix
│   └── StoreRefuses        Redis answers, and takes no writes          url
├── ArchiveUnavailable      the archive's database cannot be used       cause
├── ArchiveTooNew           a newer Fairlane wrote the archive          version
├── ScriptError             a script rejected its arguments             script, code
├── LocalStackError         a local process did not start               process, log
│
│   Raised and caught inside the scheduler and the workers:
├── BrokenPage              a page of rows is damaged
├── BrokenSessions          a page of session memberships is damaged
├── UnreadableRow           a row is missing or damaged
├── UnknownModel            a model names no lane that may be used
├── FunctionNotFound        this worker has no such function            claimed
├── FunctionMismatch        a function asks for unknown parameters
├── CutOff                  what a team wrote took too much             what, setting
├── WorkRaised              what a team wrote raised an unknown error
├── NoChild                 no child process can run what a team wrote
├── NewerVersion            a newer Fairlane wrote a message or plan
└── RunGone                 the run of an attempt is no longer in Redis
"""

import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from fairlane.core.error_state import reduced, shown


class FairlaneError(Exception):
    """Any error that Fairlane raises on purpose. ``str(error)`` is written for the person who caused it.

    Every error survives ``pickle`` and ``copy`` with its message, attributes and notes. An attribute that
    cannot be pickled, such as the row's value that was refused, arrives as its text.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(self)


_LISTED = 5
"""Ids that a message lists."""

_LONGEST_WAIT_S = 366 * 86_400
"""A year: a longer ``retry_after`` is a mistake, such as a date in place of a duration."""


def _explained(field: str, value: object, problem: str, remedy: str) -> str:
    return f"{field}: {problem} (got {shown(value)}). {remedy}".rstrip()


class ConfigurationError(FairlaneError, ValueError):
    """A setting is wrong or unknown. Carries ``field``, ``value`` and ``remedy``."""

    def __init__(self, field: str, value: object, problem: str, remedy: str = "") -> None:
        super().__init__(_explained(field, value, problem, remedy))
        self.field, self.value, self.remedy = field, value, remedy


class SubmissionError(FairlaneError, ValueError):
    """An argument of ``submit`` is wrong. Nothing was written. ``row`` is 1-based where a row is at fault."""

    def __init__(
        self, field: str, value: object, problem: str, remedy: str = "", *, row: int | None = None
    ) -> None:
        where = field if row is None else f"{field}, row {row}"
        super().__init__(_explained(where, value, problem, remedy))
        self.field, self.value, self.remedy, self.row = field, value, remedy, row


class DatasetChanged(SubmissionError):
    """A dataset by reference has other rows than a run has read from it: ``first`` to ``last``, from 1."""

    def __init__(self, url: str, first: int, last: int) -> None:
        problem = f"has changed since the run read it: rows {first:,} to {last:,} are other rows now, or gone"
        super().__init__("dataset", url, problem, "Restore it as it was, or submit its rows as a new run.")


class BatchFileError(SubmissionError):
    """Lines of a batch file cannot be sent, and none was. ``problems`` are pairs of line and reason.

    ``more``: reading stopped at this number of problems.
    """

    def __init__(self, path: Path, problems: list[tuple[int, str]], *, more: bool) -> None:
        super().__init__("batch", str(path), "cannot be sent")
        further = [f"  and more: reading stopped after {len(problems)}"] if more else []
        listed = [f"  line {line:,}: {what}" for line, what in problems]
        self.args = ("\n".join([f"{path} cannot be sent; nothing was:", *listed, *further]),)
        self.problems = problems


class UnsupportedError(FairlaneError, ValueError):
    """A promptfoo configuration cannot be run as it is written; nothing was. ``problems`` are all reasons."""

    def __init__(self, problems: tuple[Any, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


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
    """The run is in the archive; Redis has only a stub, which says how it ended."""

    def __init__(self, run_id: str) -> None:
        FairlaneError.__init__(
            self, f"run {run_id!r} has been moved to the archive; set archive.url to the database to read it"
        )
        self.run_id = run_id


class RunLost(RunNotFound):
    """Redis lost a part of a submission, as a server that restarts may lose its last second; nothing runs."""

    def __init__(self, run_id: str, what: str) -> None:
        FairlaneError.__init__(
            self, f"run {run_id!r}: Redis has lost {what}. Nothing of it runs. Submit it again"
        )
        self.run_id, self.what = run_id, what


class ResultsLost(FairlaneError, LookupError):
    """Redis has lost ``what`` of a run that had started; what is left cannot be read as its results."""

    def __init__(self, run_id: str, what: str) -> None:
        super().__init__(
            f"run {run_id!r}: Redis has lost {what}. It evicts keys unless maxmemory-policy is noeviction: "
            "`fairlane doctor` says whether it does. A new run makes and pays all calls again"
        )
        self.run_id, self.what = run_id, what


class AmbiguousRun(FairlaneError, LookupError):
    """Several runs begin with the given id. ``matches`` are their ids, newest last."""

    def __init__(self, wanted: str, matches: list[str]) -> None:
        shown = ", ".join(matches[-_LISTED:])
        more = f" and {len(matches) - _LISTED} more" if len(matches) > _LISTED else ""
        super().__init__(f"{len(matches)} runs begin with {wanted!r}: {shown}{more}. Give more of the id")
        self.matches = matches


class InboxFull(FairlaneError):
    """A run was not submitted, because ``waiting`` requests of ``team`` wait for a scheduler to read them.

    Nothing was written. The same submission succeeds once fewer wait.
    """

    def __init__(self, team: str, waiting: int, most: int) -> None:
        super().__init__(
            f"{waiting:,} requests of team {team} wait for a scheduler to read them; nothing is submitted "
            f"while {most:,} or more do (scheduler.limits.waiting_requests). Submit it again later; "
            "`fairlane doctor` says whether a scheduler leads"
        )
        self.team, self.waiting, self.most = team, waiting, most


class RunEnded(FairlaneError):
    """A row was added to a run that has ended, or whose writer was closed: then ``state`` is "closed"."""

    def __init__(self, run_id: str, state: str) -> None:
        super().__init__(f"run {run_id} is {state}: no more rows can be added")
        self.run_id, self.state = run_id, state


class LaneNotFound(FairlaneError, LookupError):
    """No lane of that name was ever configured or used. ``known`` are the names of the others."""

    def __init__(self, lane: str, known: list[str] | None = None) -> None:
        listed = f"; known lanes: {', '.join(known)}" if known else ""
        super().__init__(f"no lane {lane!r}{listed}")
        self.lane = lane


class WorkerNotFound(FairlaneError, LookupError):
    """No worker has that name. ``known`` are the names of the workers that send heartbeats."""

    def __init__(self, wanted: str, known: Sequence[str]) -> None:
        listed = f"; there are {', '.join(known)}" if known else "; none is connected"
        super().__init__(f"no worker {wanted!r}{listed}")
        self.wanted, self.known = wanted, tuple(known)


class TargetNotFound(FairlaneError, LookupError):
    """``why`` was asked about a name that is no lane, run or job. ``near`` are similar names that exist."""

    def __init__(self, target: str, near: Sequence[str] = (), detail: str = "") -> None:
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        listed = "`fairlane lanes` and `fairlane runs` list what is there; a job is RUN/ITEM or RUN/ITEM/STEP"
        super().__init__(f"no lane, run or job {target!r}{meant} ({detail or listed})")
        self.target, self.near = target, tuple(near)


class RunTimeout(FairlaneError, TimeoutError):
    """``wait(timeout=…)`` gave up after ``timeout`` seconds; the run itself continues."""

    def __init__(self, run_id: str, timeout: float) -> None:
        super().__init__(f"run {run_id} was not finished after {timeout:g} s; it continues")
        self.run_id, self.timeout = run_id, timeout


class StoreUnavailable(FairlaneError, ConnectionError):
    """Redis cannot be reached at ``url`` (shown without its password)."""

    def __init__(
        self, url: str, cause: str, remedy: str = "Start one with `fairlane up`, or set redis.url"
    ) -> None:
        super().__init__(f"cannot reach Redis at {url}: {cause.rstrip('.')}. {remedy}")
        self.url = url


class OldSchema(StoreUnavailable):
    """Redis has keys of the deployment below ``prefix`` that an earlier version of Fairlane wrote."""

    def __init__(self, url: str, deployment: str, prefix: str, version: str) -> None:
        FairlaneError.__init__(
            self,
            f"Redis at {url} has keys {prefix}* of deployment {deployment!r}, written by an earlier "
            f"version of Fairlane; this one uses schema {version}. Let that version finish its runs and "
            "delete the keys, or choose another name in redis.deployment",
        )
        self.url, self.prefix = url, prefix


class StoreRefuses(StoreUnavailable):
    """Redis at ``url`` answers and refuses: it is full, read-only, loading or busy, or denies a right."""

    def __init__(self, url: str, problem: str, remedy: str) -> None:
        FairlaneError.__init__(self, f"{problem} ({url}). {remedy}")
        self.url = url


class RateLimited(FairlaneError):
    """Your function raises it on a worker when the service that it calls answers "too fast".

    Fairlane makes the call again, at no cost in attempts. It starts nothing on the lane for ``retry_after``,
    seconds or a `timedelta`, if the service named a wait.
    """

    def __init__(self, message: str = "too fast", *, retry_after: float | timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after

    @property
    def retry_after_ms(self) -> int | None:
        """``retry_after`` in milliseconds, rounded up; ``None`` if it is no duration from 0 to a year."""
        given = self.retry_after
        seconds = given.total_seconds() if isinstance(given, timedelta) else given
        if not isinstance(seconds, int | float) or not 0 <= seconds <= _LONGEST_WAIT_S:
            return None
        return math.ceil(seconds * 1000)


class CallFailed(FairlaneError):
    """A call of a function has no result. ``error`` says why, after ``attempts`` attempts."""

    def __init__(self, call: str, error: str, attempts: int = 0) -> None:
        super().__init__(f"call {call}: {error}")
        self.call, self.error, self.attempts = call, error, attempts


class ArchiveUnavailable(FairlaneError, ConnectionError):
    """The archive's database cannot be reached, read or written. ``cause`` never contains its URL."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"cannot use the archive: {cause}")
        self.cause = cause


class ArchiveTooNew(FairlaneError):
    """A newer Fairlane wrote the archive's tables, in schema ``version``; this one knows ``known``."""

    def __init__(self, version: int, known: int) -> None:
        super().__init__(
            f"the archive has schema version {version}, and this Fairlane knows {known}: upgrade it"
        )
        self.version = version


class UnknownFormat(FairlaneError, ValueError):
    """The format of results is unknown, or a file's name says none."""


class MissingExtra(FairlaneError, ImportError):
    """A function needs a library that is not installed. ``extra`` is the extra that installs it."""

    def __init__(self, what: str, library: str, extra: str) -> None:
        super().__init__(f"{what} needs {library}, which is not installed: pip install 'fairlane[{extra}]'")
        self.extra = extra


class NoTerminal(FairlaneError):
    """Standard input or output is no terminal, or one that cannot place its cursor."""

    def __init__(self) -> None:
        super().__init__("there is no terminal to draw in and read keys from: use --once or --json")


class ScriptError(FairlaneError):
    """A script rejected its arguments: always a defect of Fairlane, never a user's mistake."""

    def __init__(self, script: str, code: str) -> None:
        super().__init__(f"script {script}: {code}")
        self.script, self.code = script, code


class LocalStackError(FairlaneError):
    """A process of the local stack did not start; ``log`` is the file that says why."""

    def __init__(self, process: str, problem: str, log: str | None = None) -> None:
        super().__init__(f"{process}: {problem}" + (f" (see {log})" if log else ""))
        self.process, self.log = process, log


class BrokenPage(FairlaneError):
    """A page of rows in Redis is not one that a client writes."""


class BrokenSessions(FairlaneError):
    """A page of session memberships or members in Redis is not one that a client writes."""


class UnreadableRow(FairlaneError, ValueError):
    """A row is missing or damaged: its item cannot run."""


class UnknownModel(FairlaneError, ValueError):
    """A model reference names no configured connection, or no lane that may be opened."""


class FunctionNotFound(FairlaneError, LookupError):
    """This worker has no such function. Unless ``claimed``, another worker may have it."""

    def __init__(self, message: str, *, claimed: bool = True) -> None:
        super().__init__(message)
        self.claimed = claimed


class FunctionMismatch(FairlaneError, TypeError):
    """A function has parameters that Fairlane cannot fill."""


class CutOff(FairlaneError):
    """A piece of work exceeded a limit and was ended. The message names the work, the limit and a remedy.

    ``setting`` is the limit's name.
    """

    def __init__(self, what: str, bound: str, setting: str) -> None:
        remedy = "simplify it, or shorten the row's values"
        super().__init__(f"{what}: it was ended, as it {bound} ({setting}); {remedy}")
        self.what, self.setting = what, setting


class WorkRaised(FairlaneError):
    """A piece of work raised an unexpected error; the message quotes it."""


class NoChild(FairlaneError):
    """No child process could be started, or the pool is closed; the message says why."""


class NewerVersion(FairlaneError):
    """A newer Fairlane wrote a message or a plan. The worker requeues its job, at no cost."""


class RunGone(FairlaneError):
    """The run of an attempt is no longer in Redis."""


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes, back to the first."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
