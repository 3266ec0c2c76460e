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
    from fairlane.client.completions import chat_completion
    from fairlane.client.following.chunks import Chunk
    from fairlane.client.outputs import Run
    from fairlane.client.views.comparison import Comparison, Difference
    from fairlane.client.views.forecast import Forecast
    from fairlane.client.views.lanes import Lane, LaneList
    from fairlane.client.views.summary import Summary
    from fairlane.config.settings import Settings
    from fairlane.core.errors import *  # pyright: ignore[reportWildcardImportFromLibrary]
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
    from fairlane.evaluators.embeddings import read_embeddings
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
    "chat_completion",
    "contains",
    "criterion",
    "exact_match",
    "json_valid",
    "llm_judge",
    "numeric_match",
    "parse_outputs",
    "read_embeddings",
    "regex",
    "scorer",
    "similarity",
]

_ELSEWHERE = {
    "fairlane.client.asynchronous.calls": "AsyncCallHandle AsyncCallMap",
    "fairlane.client.asynchronous.client": "AsyncClient",
    "fairlane.client.asynchronous.run": "AsyncRun",
    "fairlane.client.calls": "CallHandle CallMap",
    "fairlane.client.cells.handle": "CellsRun CellsStatus",
    "fairlane.client.cells.routing": "Cells",
    "fairlane.client.client": "Client",
    "fairlane.client.completions": "chat_completion",
    "fairlane.client.following.chunks": "Chunk",
    "fairlane.client.outputs": "Run",
    "fairlane.client.views.comparison": "Comparison Difference",
    "fairlane.client.views.forecast": "Forecast",
    "fairlane.client.views.lanes": "Lane LaneList",
    "fairlane.client.views.summary": "Summary",
    "fairlane.config.settings": "Settings",
    "fairlane.core.version": "__version__",
    "fairlane.datasets.references": "Reference",
    "fairlane.evaluators.builders": (
        "agent contains criterion exact_match json_valid llm_judge numeric_match regex similarity"
    ),
    "fairlane.evaluators.embeddings": "read_embeddings",
    "fairlane.evaluators.function_scorers": "scorer",
    "fairlane.export.parsed": "Parsed parse_outputs",
    "fairlane.model.decision": "RetryPolicy",
    "fairlane.model.job": "JobState",
    "fairlane.model.record": "Record",
    "fairlane.model.run": "RunState",
    "fairlane.model.run_status": "LaneProgress RoleTime RunStatus",
    "fairlane.model.sessions": "SessionRecord",
    "fairlane.model.tokens": "Usage",
    "fairlane.why.waiting": "Eta LaneWait Waiting",
}
"""The public names of each module but that of errors."""

_HOMES = dict.fromkeys(__all__, "fairlane.core.errors") | {
    name: home for home, names in _ELSEWHERE.items() for name in names.split()
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
