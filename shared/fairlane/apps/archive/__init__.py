"""The archive: keeps finished runs in a database, where readers find them as if they were still in Redis.

Client and scheduler find it through an entry point; it imports the client and the rooms below.
"""

from fairlane.cli.commands import OPERATIONS, Command

COMMANDS = (
    Command(
        "archive",
        OPERATIONS,
        "Move finished runs into the database that archive.url names; all commands still read them.",
        "fairlane.apps.archive.command",
    ),
)
