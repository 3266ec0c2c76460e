"""``fairlane flower``: becomes Flower's process, with Fairlane's pages in it."""

import importlib.util
from collections.abc import Sequence
from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.output import say
from fairlane.cli.process import exec_module, require_ready
from fairlane.config.environment import process_environment
from fairlane.core.errors import LocalStackError
from fairlane.embedded.ports import FLOWER_PORT, LOOPBACK

app = typer.Typer()

FLOWER_MEMORY_TASKS = 10_000  # Flower keeps about 5 KB a task; its own default of 100,000 is half a gigabyte
FLOWER_MEMORY_WORKERS_S = 86_400  # each restart of a worker has a new name

LOGINS = frozenset(("FLOWER_BASIC_AUTH", "FLOWER_AUTH"))
SECRET_OPTIONS = frozenset(("basic_auth", "broker_api", "cookie_secret", "oauth2_secret"))


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
    options, secrets = split_options(extra or ())
    stated = any("auth" in option for option in options) or "FLOWER_BASIC_AUTH" in secrets
    login = stated or not LOGINS.isdisjoint(process_environment())
    if address not in (LOOPBACK, "localhost", "::1") and not login:
        say(
            f"caution: Flower on {address} lets whoever reaches it stop workers. "
            "Give it a login: FLOWER_BASIC_AUTH=USER:PASSWORD in the environment"
        )
    own = [f"--address={address}", f"--port={port}", f"--max_tasks={FLOWER_MEMORY_TASKS}"]
    own += [f"--purge_offline_workers={FLOWER_MEMORY_WORKERS_S}"]
    own += [] if events else ["--enable_events=False"]
    own += ["--show-text"] if show_text else []
    exec_module("fairlane.flower", [*own, *options], {**invocation.environment(), **secrets})


def split_options(options: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Split Flower's options into arguments, and environment variables for those that hold a secret. Every
    user of the machine can read a process's arguments, but only its own user its environment.
    """
    shown, secrets = list[str](), dict[str, str]()
    for option in options:
        name, given, value = option.partition("=")
        plain = name.lstrip("-").replace("-", "_")
        if given and plain in SECRET_OPTIONS:
            secrets[f"FLOWER_{plain.upper()}"] = value
        else:
            shown.append(option)
    return shown, secrets
