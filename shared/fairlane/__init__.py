"""Fairlane runs large batches of LLM calls, and their evaluations, within what each provider allows."""

from fairlane.admission.waiting import Eta, LaneWait, Waiting
from fairlane.calls import CallHandle, CallMap
from fairlane.client import Client
from fairlane.datasets.references import Reference
from fairlane.errors import (
    ArchiveUnavailable,
    CallFailed,
    ConfigurationError,
    FairlaneError,
    LaneNotFound,
    LocalStackError,
    RateLimited,
    RunArchived,
    RunNotFound,
    RunTimeout,
    ScriptError,
    StoreUnavailable,
    SubmissionError,
    TargetNotFound,
    TemplateError,
)
from fairlane.estimate import Forecast
from fairlane.evaluators import (
    agent,
    contains,
    criterion,
    exact_match,
    json_valid,
    llm_judge,
    numeric_match,
    regex,
    scorer,
    similarity,
)
from fairlane.export import MissingExtra
from fairlane.handle import Run
from fairlane.job import JobState, Usage
from fairlane.retry import RetryPolicy
from fairlane.run import LaneProgress, Record, RunState, RunStatus
from fairlane.sessions import SessionRecord
from fairlane.settings import Settings
from fairlane.summary import Summary
from fairlane.version import __version__

__all__ = [
    "ArchiveUnavailable",
    "CallFailed",
    "CallHandle",
    "CallMap",
    "Client",
    "ConfigurationError",
    "Eta",
    "FairlaneError",
    "Forecast",
    "JobState",
    "LaneNotFound",
    "LaneProgress",
    "LaneWait",
    "LocalStackError",
    "MissingExtra",
    "RateLimited",
    "Record",
    "Reference",
    "RetryPolicy",
    "Run",
    "RunArchived",
    "RunNotFound",
    "RunState",
    "RunStatus",
    "RunTimeout",
    "ScriptError",
    "SessionRecord",
    "Settings",
    "StoreUnavailable",
    "SubmissionError",
    "Summary",
    "TargetNotFound",
    "TemplateError",
    "Usage",
    "Waiting",
    "__version__",
    "agent",
    "contains",
    "criterion",
    "exact_match",
    "json_valid",
    "llm_judge",
    "numeric_match",
    "regex",
    "scorer",
    "similarity",
]
