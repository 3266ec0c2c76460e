"""Runs files of the OpenAI Batch API: one request a line in; answers and errors out, in the same order.

``fairlane batch`` finds it through an entry point; it imports the client and the command line's shared parts.
"""

from fairlane.cli.commands import RUNS, Command

COMMANDS = (
    Command(
        "batch",
        RUNS,
        "Send the requests of an OpenAI batch file, wait for the answers, and write them as that API does.",
        "fairlane.apps.batchfile.command",
    ),
)
