"""Commands that submit, watch, explain and read runs.

`fairlane.cli` lists them; they import the client, `why` and what commands share.
"""

from fairlane.cli.commands import RUNS, Command

COMMANDS = (
    Command("submit", RUNS, "Submit a run and print its id.", "fairlane.cli.runs.submitting.submit"),
    Command(
        "continue",
        RUNS,
        "Continue a finished run: submit a new one that takes over its results, and print its id.",
        "fairlane.cli.runs.submitting.continuing",
    ),
    Command("runs", RUNS, "List the team's runs, newest first.", "fairlane.cli.runs.runs"),
    Command("status", RUNS, "Show the progress of a run, by default the latest.", "fairlane.cli.runs.runs"),
    Command(
        "watch",
        RUNS,
        "Watch a run until it finishes; with --json, a line at each change.",
        "fairlane.cli.runs.runs",
    ),
    Command(
        "pause",
        RUNS,
        "Pause a run: no call of it starts until `fairlane resume`; calls in flight end.",
        "fairlane.cli.runs.runs",
    ),
    Command("resume", RUNS, "Resume a paused run.", "fairlane.cli.runs.runs"),
    Command(
        "cancel",
        RUNS,
        "Cancel a run: abort calls in flight, keep finished jobs.",
        "fairlane.cli.runs.runs",
    ),
    Command(
        "why",
        RUNS,
        "Explain why a lane, a run or a job waits, and estimate when it starts.",
        "fairlane.cli.runs.why",
    ),
    Command(
        "results",
        RUNS,
        "Write a run's records, in item order; waits for the run's end.",
        "fairlane.cli.runs.results",
    ),
    Command(
        "summary",
        RUNS,
        "Sum up a run: scores with their standard errors, failures, tokens, cost; waits for its end.",
        "fairlane.cli.runs.summary",
    ),
    Command(
        "compare",
        RUNS,
        "Compare the scores of two runs item by item: the second minus the first; waits for their ends.",
        "fairlane.cli.runs.compare",
    ),
)
