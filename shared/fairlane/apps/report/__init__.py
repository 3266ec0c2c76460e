"""The application that writes a run's report: one self-contained HTML page.

``Run.report`` and ``fairlane report`` find it through entry points; it imports the client and `cli`.
"""

from fairlane.cli.commands import RUNS, Command

COMMANDS = (
    Command(
        "report",
        RUNS,
        "Write a self-contained HTML page: scores, cost, throughput, failures. Waits for the end.",
        "fairlane.apps.report.command",
    ),
)
