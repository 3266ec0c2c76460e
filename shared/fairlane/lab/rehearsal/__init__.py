"""Rehearsals: the real scheduler in virtual time. An hour of a lane takes seconds, and a seed repeats it.

``fairlane rehearse``, benchmarks and simulation tests use it; it imports the scheduler and `embedded`.
"""

from fairlane.cli.commands import RUNS, Command

COMMANDS = (
    Command(
        "rehearse",
        RUNS,
        "Predict a run's duration, calls, tokens and 429s in virtual time, without sending anything.",
        "fairlane.lab.rehearsal.command",
    ),
)
