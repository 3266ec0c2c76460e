"""Commands that show and change lanes, workers, budgets and capacity.

`fairlane.cli` lists them; they import the client, the store and what commands share.
"""

from fairlane.cli.commands import OPERATIONS, commands

COMMANDS = commands(
    OPERATIONS,
    "fairlane.cli.lanes",
    {
        "lanes": "List lanes and what limits each; set limits, pause, resume.",
        "budgets": "List the teams' budgets and their use; change them.",
        "workers": "List the workers that are connected.",
        "capacity": "Show whether more workers would help: compares their slots with the calls that the "
        "lanes allow.",
    },
    {"capacity": "workers"},
)
