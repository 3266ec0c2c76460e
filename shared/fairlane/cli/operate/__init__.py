"""Commands for operators of a deployment: checks, teams, connections, audit, drain.

`fairlane.cli` lists them; they import the store, `config` and what commands share.
"""

from fairlane.cli.commands import HERE, OPERATIONS, ROLES, Command

COMMANDS = (
    Command(
        "init",
        HERE,
        "Write a commented fairlane.toml, with a connection for each provider whose key is set.",
        "fairlane.cli.operate.init",
    ),
    Command(
        "teams", OPERATIONS, "Give each team a user of its own on the server.", "fairlane.cli.operate.teams"
    ),
    Command(
        "connections",
        OPERATIONS,
        "List the connections to providers and what each lacks in this environment; test one.",
        "fairlane.cli.operate.connections",
    ),
    Command(
        "config",
        OPERATIONS,
        "Show the settings in force, each with its source; secrets are masked.",
        "fairlane.cli.operate.config",
    ),
    Command(
        "drain",
        OPERATIONS,
        "Drain workers: they finish their calls, however long that takes, and take no new ones.",
        "fairlane.cli.operate.drain",
    ),
    Command(
        "audit",
        OPERATIONS,
        "Show who submitted, cancelled or changed a limit, and when; --team selects one team.",
        "fairlane.cli.operate.audit",
    ),
    Command(
        "doctor",
        OPERATIONS,
        "Check Redis, scheduler, workers, connections and lanes, and say what to do.",
        "fairlane.cli.operate.doctor",
    ),
    Command("scheduler", ROLES, "Run a scheduler: one leads, others stand by.", "fairlane.cli.operate.roles"),
    Command("worker", ROLES, "Run a worker.", "fairlane.cli.operate.roles"),
)
