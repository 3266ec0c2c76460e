"""The simulated provider: an HTTP server with configured limits, latencies, answers and faults.

Tests, the demo and ``fairlane simulate`` run it. It shares no table with the workers, so that tests find the
errors of either side. `http` imports `model` and `protocols`; those import `wire`, which imports `limits`.
"""

from fairlane.cli.commands import ROLES, Command

COMMANDS = (
    Command(
        "simulate",
        ROLES,
        "Run the simulated provider alone: every protocol, with limits and faults.",
        "fairlane.lab.simulator.command",
    ),
)
