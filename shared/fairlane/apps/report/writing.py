"""Writes the report of a finished run: reads the lanes' activity, then renders the page."""

from collections.abc import Iterable
from os import PathLike

from fairlane.apps.report.activity import activity_of
from fairlane.apps.report.page import ReportSource, write_report
from fairlane.client.deployment import Deployment
from fairlane.client.views.comparison import Comparison
from fairlane.model.record import Record
from fairlane.model.run import RunSpec
from fairlane.model.run_status import RunStatus
from fairlane.model.sessions import SessionRecord


def report_of(
    deployment: Deployment,
    spec: RunSpec,
    status: RunStatus,
    records: Iterable[Record],
    sessions: Iterable[SessionRecord],
    path: str | PathLike[str],
    examples: int,
    comparison: Comparison | None = None,
) -> int:
    """Write the page to ``path`` and return the number of records in it. Raises ``OSError``.

    ``records`` are those of all items in their order, with the scores that the caller adds.
    ``comparison`` is with another run, whose scores come first in it.
    """
    with deployment.answering():
        now_ms = deployment.runs.now_ms()
        activity = activity_of(deployment.redis, deployment.keys, status, now_ms)
    source = ReportSource(
        spec,
        status,
        records,
        sessions,
        deployment.settings.prices,
        activity,
        now_ms,
        comparison,
    )
    return write_report(path, source, examples)
