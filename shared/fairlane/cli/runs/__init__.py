"""Commands that submit, watch, explain and read runs.

`fairlane.cli` lists them; they import the client, `why` and what commands share.
"""

from fairlane.cli.commands import RUNS, commands

COMMANDS = commands(
    RUNS,
    "fairlane.cli.runs",
    {
        "submit": "Submit a run and print its id.",
        "continue": "Continue a finished run: submit a new one that takes over its results, and print "
        "its id.",
        "runs": "List the team's runs, newest first.",
        "status": "Show the progress of a run, by default the latest.",
        "watch": "Watch a run until it finishes; with --json, a line at each change.",
        "pause": "Pause a run: no call of it starts until `fairlane resume`; calls in flight end.",
        "resume": "Resume a paused run.",
        "cancel": "Cancel a run: abort calls in flight, keep finished jobs.",
        "why": "Explain why a lane, a run or a job waits, and estimate when it starts.",
        "results": "Write a run's records, in item order; waits for the run's end.",
        "summary": "Sum up a run: scores with their standard errors, failures, tokens, cost; waits for its "
        "end.",
        "compare": "Compare the scores of two runs item by item: the second minus the first; "
        "waits for their ends.",
    },
    {
        "submit": "submitting.submit",
        "continue": "submitting.submit",
        **dict.fromkeys(("status", "watch", "pause", "resume", "cancel"), "runs"),
    },
)
