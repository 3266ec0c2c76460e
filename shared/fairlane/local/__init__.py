"""A whole deployment on one machine: an embedded Redis and each role as a child process. And the demo.

``fairlane up`` and ``fairlane demo`` use it; it imports `embedded`, the client and parts of the command line.
"""

from fairlane.cli.commands import HERE, Command

COMMANDS = (
    Command(
        "up",
        HERE,
        "Run everything on this machine, in the foreground. Ctrl-C takes all of it down.",
        "fairlane.local.up_command",
    ),
    Command(
        "demo",
        HERE,
        "Show what Fairlane does, in about a minute: real processes, a simulated provider.",
        "fairlane.local.demo_command",
    ),
)
