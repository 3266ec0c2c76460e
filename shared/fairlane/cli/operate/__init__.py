"""Commands for operators of a deployment: checks, teams, connections, audit, drain.

`fairlane.cli` lists them; they import the store, `config` and what commands share.
"""

from fairlane.cli.commands import HERE, OPERATIONS, ROLES, commands

ROOM = "fairlane.cli.operate"
COMMANDS = (
    *commands(
        HERE,
        ROOM,
        {"init": "Write a commented fairlane.toml, with a connection for each provider whose key is set."},
    ),
    *commands(
        OPERATIONS,
        ROOM,
        {
            "teams": "Give each team its own Redis user; set weights and shares.",
            "connections": "List the connections to providers and what each lacks in this environment; "
            "test one.",
            "config": "Show the settings in force, each with its source; secrets are masked.",
            "drain": "Drain workers: they finish their calls, however long that takes, and take no new ones.",
            "audit": "Show who submitted, cancelled or changed a limit, and when; --team selects one team.",
            "doctor": "Check Redis, scheduler, workers, connections and lanes, and say what to do.",
        },
    ),
    *commands(
        ROLES,
        "fairlane.cli",
        {"scheduler": "Run a scheduler: one leads, others stand by.", "worker": "Run a worker."},
        {"scheduler": "process", "worker": "process"},
    ),
)
