"""Commands that show and change lanes, workers, budgets and capacity.

`fairlane.cli` lists them; they import the client, the store and what commands share.
"""

from fairlane.cli.commands import OPERATIONS, Command

COMMANDS = (
    Command(
        "lanes",
        OPERATIONS,
        "List lanes and what limits each; set limits, pause, resume.",
        "fairlane.cli.lanes.lanes",
    ),
    Command(
        "budgets",
        OPERATIONS,
        "List the teams' budgets and their use; change them.",
        "fairlane.cli.lanes.budgets",
    ),
    Command("workers", OPERATIONS, "List the workers that are connected.", "fairlane.cli.lanes.workers"),
    Command(
        "capacity",
        OPERATIONS,
        "Show whether more workers would help: compares their slots with the calls that the lanes allow.",
        "fairlane.cli.lanes.capacity",
    ),
)
