"""A whole deployment on one machine, with an embedded Redis and each role as a child process; and the demo.

``fairlane up`` and ``fairlane demo`` use it; it imports `embedded`, the client and parts of the command line.
"""

from fairlane.cli.commands import HERE, commands

COMMANDS = commands(
    HERE,
    "fairlane.local",
    {
        "up": "Run everything on this machine, in the foreground. Ctrl-C stops all of it.",
        "demo": "Show what Fairlane does, in about a minute: real processes, a simulated provider.",
    },
    {"up": "up_command", "demo": "demo_command"},
)
