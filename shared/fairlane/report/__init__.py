"""A run's report: one page of HTML that stands alone, to be looked at, printed and sent around."""

from fairlane.report.activity import activity_of
from fairlane.report.page import MOST_EXAMPLES, ReportSource, write_report

__all__ = ["MOST_EXAMPLES", "ReportSource", "activity_of", "write_report"]
