"""Runs promptfoo configurations, or rejects them with a list of all that is unsupported.

``fairlane eval`` finds it through an entry point; it imports the client and the command line's shared parts.
"""

from fairlane.cli.commands import RUNS, Command

COMMANDS = (
    Command(
        "eval", RUNS, "Run a promptfoo configuration and show what passed.", "fairlane.apps.promptfoo.command"
    ),
)
