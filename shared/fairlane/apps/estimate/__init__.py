"""The application that estimates a run before it is submitted: calls, tokens, cost and time.

``Client.estimate`` and ``fairlane estimate`` find it through entry points; it imports the client and `cli`.
"""

from fairlane.cli.commands import RUNS, Command

COMMANDS = (
    Command(
        "estimate",
        RUNS,
        "Estimate a run's calls, tokens, cost and time, from a sample of rows and the lanes' state.",
        "fairlane.apps.estimate.command",
    ),
)
