"""``fairlane top``: a live view of lanes, runs, teams and workers in the terminal.

It is found through an entry point; it imports the command line's shared parts and the rooms below.
"""

from fairlane.cli.commands import OPERATIONS, Command

COMMANDS = (
    Command(
        "top",
        OPERATIONS,
        "Show lanes, runs, teams and workers, live: h lists the keys, q quits.",
        "fairlane.top.command",
    ),
)
