"""Pages for lanes, runs and teams inside Flower, Celery's dashboard. Needs the extra ``flower``.

``fairlane flower`` starts it; it imports the client, `why`, the store and the broker.
"""

from fairlane.cli.commands import ROLES, Command

COMMANDS = (
    Command(
        "flower",
        ROLES,
        "Run Flower, Celery's dashboard, with pages for lanes, runs and teams.",
        "fairlane.flower.command",
    ),
)
