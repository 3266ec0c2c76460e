"""``fairlane flower``: becomes Flower's process, with Fairlane's pages in it."""

from __future__ import annotations

import importlib.util
from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.output import say
from fairlane.cli.process import become, require_ready
from fairlane.core.errors import LocalStackError
from fairlane.embedded.ports import FLOWER_PORT, LOOPBACK

app = typer.Typer()

FLOWER_MEMORY_TASKS = 10_000  # Flower keeps about 5 KB a task; its own default of 100,000 is half a gigabyte
FLOWER_MEMORY_WORKERS_S = 86_400  # every restart is a worker of another name


@app.command()
@with_settings
def flower(
    invocation: Invocation,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = LOOPBACK,
    port: Annotated[int, typer.Option(min=1, max=65_535)] = FLOWER_PORT,
    events: Annotated[bool, typer.Option(help="Make workers send an event to Flower for every task.")] = True,
    show_text: Annotated[
        bool, typer.Option("--show-text", help="Show rows and outputs on the pages of items.")
    ] = False,
    extra: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Options that are passed on to Flower.")
    ] = None,
) -> None:
    """Run Flower, Celery's dashboard, with pages for lanes, runs and teams."""
    require_ready(invocation)
    if importlib.util.find_spec("flower") is None:
        raise LocalStackError("flower", "is not installed. `pip install 'fairlane[flower]'` brings it")
    options = list(extra or ())
    if address not in (LOOPBACK, "localhost", "::1") and not any("auth" in option for option in options):
        say(
            f"caution: Flower on {address} lets whoever reaches it stop workers. "
            "Give it a login: fairlane flower … -- --basic_auth=USER:PASSWORD"
        )
    own = [f"--address={address}", f"--port={port}", f"--max_tasks={FLOWER_MEMORY_TASKS}"]
    own += [f"--purge_offline_workers={FLOWER_MEMORY_WORKERS_S}"]
    own += [] if events else ["--enable_events=False"]
    own += ["--show-text"] if show_text else []
    become("fairlane.flower", [*own, *options], invocation.environment())
