"""Fairlane runs large batches of LLM calls, and their evaluations, within what each provider allows.

The public names. Each loads its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlane.client.asynchronous.calls import AsyncCallHandle, AsyncCallMap
    from fairlane.client.asynchronous.client import AsyncClient
    from fairlane.client.asynchronous.run import AsyncRun
    from fairlane.client.calls import CallHandle, CallMap
    from fairlane.client.cells.handle import CellsRun, CellsStatus
    from fairlane.client.cells.routing import Cells
    from fairlane.client.client import Client
    from fairlane.client.following.chunks import Chunk
    from fairlane.client.handle import Run
    from fairlane.client.views.comparison import Comparison, Difference
    from fairlane.client.views.forecast import Forecast
    from fairlane.client.views.lanes import Lane, LaneList
    from fairlane.client.views.summary import Summary
    from fairlane.config.settings import Settings
    from fairlane.core.errors import (
        AmbiguousRun,
        ArchiveTooNew,
        ArchiveUnavailable,
        BatchFileError,
        BrokenPage,
        BrokenSessions,
        CallFailed,
        ConfigurationError,
        CutOff,
        DatasetChanged,
        FairlaneError,
        FunctionMismatch,
        FunctionNotFound,
        InboxFull,
        LaneNotFound,
        LocalStackError,
        MissingExtra,
        NewerVersion,
        NoChild,
        NoTerminal,
        OldSchema,
        RateLimited,
        ResultsLost,
        RunArchived,
        RunEnded,
        RunGone,
        RunLost,
        RunNotFound,
        RunTimeout,
        ScriptError,
        StoreRefuses,
        StoreUnavailable,
        SubmissionError,
        TargetNotFound,
        TemplateError,
        UnknownFormat,
        UnknownModel,
        UnreadableRow,
        UnsupportedError,
        WorkerNotFound,
        WorkRaised,
    )
    from fairlane.core.version import __version__
    from fairlane.datasets.references import Reference
    from fairlane.evaluators.builders import (
        agent,
        contains,
        criterion,
        exact_match,
        json_valid,
        llm_judge,
        numeric_match,
        regex,
        similarity,
    )
    from fairlane.evaluators.function_scorers import scorer
    from fairlane.export.parsed import Parsed, parse_outputs
    from fairlane.model.decision import RetryPolicy
    from fairlane.model.job import JobState
    from fairlane.model.record import Record
    from fairlane.model.run import RunState
    from fairlane.model.run_status import LaneProgress, RoleTime, RunStatus
    from fairlane.model.sessions import SessionRecord
    from fairlane.model.tokens import Usage
    from fairlane.why.waiting import Eta, LaneWait, Waiting

__all__ = [
    "AmbiguousRun",
    "ArchiveTooNew",
    "ArchiveUnavailable",
    "AsyncCallHandle",
    "AsyncCallMap",
    "AsyncClient",
    "AsyncRun",
    "BatchFileError",
    "BrokenPage",
    "BrokenSessions",
    "CallFailed",
    "CallHandle",
    "CallMap",
    "Cells",
    "CellsRun",
    "CellsStatus",
    "Chunk",
    "Client",
    "Comparison",
    "ConfigurationError",
    "CutOff",
    "DatasetChanged",
    "Difference",
    "Eta",
    "FairlaneError",
    "Forecast",
    "FunctionMismatch",
    "FunctionNotFound",
    "InboxFull",
    "JobState",
    "Lane",
    "LaneList",
    "LaneNotFound",
    "LaneProgress",
    "LaneWait",
    "LocalStackError",
    "MissingExtra",
    "NewerVersion",
    "NoChild",
    "NoTerminal",
    "OldSchema",
    "Parsed",
    "RateLimited",
    "Record",
    "Reference",
    "ResultsLost",
    "RetryPolicy",
    "RoleTime",
    "Run",
    "RunArchived",
    "RunEnded",
    "RunGone",
    "RunLost",
    "RunNotFound",
    "RunState",
    "RunStatus",
    "RunTimeout",
    "ScriptError",
    "SessionRecord",
    "Settings",
    "StoreRefuses",
    "StoreUnavailable",
    "SubmissionError",
    "Summary",
    "TargetNotFound",
    "TemplateError",
    "UnknownFormat",
    "UnknownModel",
    "UnreadableRow",
    "UnsupportedError",
    "Usage",
    "Waiting",
    "WorkRaised",
    "WorkerNotFound",
    "__version__",
    "agent",
    "contains",
    "criterion",
    "exact_match",
    "json_valid",
    "llm_judge",
    "numeric_match",
    "parse_outputs",
    "regex",
    "scorer",
    "similarity",
]

_HOMES = dict.fromkeys(__all__, "fairlane.core.errors") | {
    "Forecast": "fairlane.client.views.forecast",
    "AsyncCallHandle": "fairlane.client.asynchronous.calls",
    "AsyncCallMap": "fairlane.client.asynchronous.calls",
    "AsyncClient": "fairlane.client.asynchronous.client",
    "AsyncRun": "fairlane.client.asynchronous.run",
    "CallHandle": "fairlane.client.calls",
    "CallMap": "fairlane.client.calls",
    "Cells": "fairlane.client.cells.routing",
    "CellsRun": "fairlane.client.cells.handle",
    "CellsStatus": "fairlane.client.cells.handle",
    "Chunk": "fairlane.client.following.chunks",
    "Client": "fairlane.client.client",
    "Run": "fairlane.client.handle",
    "Summary": "fairlane.client.views.summary",
    "Comparison": "fairlane.client.views.comparison",
    "Difference": "fairlane.client.views.comparison",
    "Lane": "fairlane.client.views.lanes",
    "LaneList": "fairlane.client.views.lanes",
    "Settings": "fairlane.config.settings",
    "__version__": "fairlane.core.version",
    "Reference": "fairlane.datasets.references",
    "agent": "fairlane.evaluators.builders",
    "contains": "fairlane.evaluators.builders",
    "criterion": "fairlane.evaluators.builders",
    "exact_match": "fairlane.evaluators.builders",
    "json_valid": "fairlane.evaluators.builders",
    "llm_judge": "fairlane.evaluators.builders",
    "numeric_match": "fairlane.evaluators.builders",
    "regex": "fairlane.evaluators.builders",
    "scorer": "fairlane.evaluators.function_scorers",
    "similarity": "fairlane.evaluators.builders",
    "Parsed": "fairlane.export.parsed",
    "parse_outputs": "fairlane.export.parsed",
    "JobState": "fairlane.model.job",
    "Usage": "fairlane.model.tokens",
    "RetryPolicy": "fairlane.model.decision",
    "LaneProgress": "fairlane.model.run_status",
    "RoleTime": "fairlane.model.run_status",
    "Record": "fairlane.model.record",
    "RunState": "fairlane.model.run",
    "RunStatus": "fairlane.model.run_status",
    "SessionRecord": "fairlane.model.sessions",
    "Eta": "fairlane.why.waiting",
    "LaneWait": "fairlane.why.waiting",
    "Waiting": "fairlane.why.waiting",
}


def __getattr__(name: str) -> Any:
    """Load a public name; the interpreter calls this once for each."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
