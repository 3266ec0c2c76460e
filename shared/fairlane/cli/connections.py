"""``fairlane connections``: the ways to providers, what each needs, and one call to see whether it works."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.connection_probe import ProbeRefusedError, probe_apart, probe_fields, succeeded
from fairlane.cli.connection_snippet import snippet
from fairlane.cli.connection_views import (
    connection_document,
    connection_fields,
    connection_row,
    provider_document,
)
from fairlane.cli.failures import FAILED, MISUSED
from fairlane.cli.invocation import (
    ConfigOption,
    Invocation,
    JsonOption,
    RedisOption,
    TeamOption,
    remember,
    with_settings,
)
from fairlane.cli.output import complain, print_fields, print_json, print_line, print_table, say
from fairlane.cli.panels import OPERATIONS
from fairlane.configuration import load_secrets
from fairlane.connection import Connection
from fairlane.connection_checks import unknown_provider
from fairlane.errors import ConfigurationError
from fairlane.presets import PROVIDERS, preset_of
from fairlane.settings import Settings

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As [connections.NAME] has it.")]
ProviderArgument = Annotated[
    str, typer.Argument(metavar="PROVIDER", help="As `fairlane connections --providers` lists it.")
]
CONNECTION_COLUMNS = ("connection", "provider", "protocol", "address", "key", "lanes by", "lacks")
PROVIDER_COLUMNS = ("provider", "name", "protocol", "needs", "lanes by", "charges", "address")


def connections(
    ctx: typer.Context,
    config: ConfigOption = None,
    redis: RedisOption = None,
    team: TeamOption = None,
    providers: Annotated[
        bool, typer.Option("--providers", help="List the providers that are known by name.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the connections to providers, and what each lacks in this environment; try one.

    Nothing but the settings is read: neither Redis nor a scheduler is needed.
    """
    before = ctx.obj if isinstance(ctx.obj, Invocation) else Invocation()
    invocation = Invocation(config, redis, team).or_else(before)
    remember(ctx, invocation)
    if ctx.invoked_subcommand is not None:
        return
    settings = invocation.settings()
    if not settings.connections and not providers:
        say("no connection is configured; these providers are known by name:")
    if providers or not settings.connections:
        _list_providers(as_json)
        return
    secrets = load_secrets(settings)
    documents = [connection_document(name, settings, secrets) for name in settings.connections]
    if as_json:
        print_json(documents)
    else:
        print_table(CONNECTION_COLUMNS, map(connection_row, documents))


@with_settings
def show(invocation: Invocation, name: NameArgument, as_json: JsonOption = False) -> None:
    """Show all about one connection."""
    settings = invocation.settings()
    _require(settings, name)
    document = connection_document(name, settings, load_secrets(settings))
    if as_json:
        print_json(document)
    else:
        print_fields(connection_fields(document))


@with_settings
def try_out(
    invocation: Invocation,
    name: NameArgument,
    model: Annotated[
        str | None, typer.Option("--model", "-m", metavar="MODEL", help="Left out: that of its first lane.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="What to ask.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Longest answer, 256; 0: is not sent.")
    ] = None,
    stream: Annotated[
        bool | None, typer.Option("--stream/--whole", help="Left out: as the connection has it.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0.1, metavar="S", help="Seconds to wait, 60.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make one call with this environment's key, and tell what it shows of the provider.

    It is sent by a process like a worker's, without Redis, and counts on no lane. Ends with 0 if there is an
    answer, with 1 if there is none, with 2 if no call could be made.
    """
    settings = invocation.settings()
    chosen = model or _first_model(name, _require(settings, name), settings)
    options = {
        "model": chosen,
        "prompt": prompt,
        "max-tokens": max_tokens,
        "timeout": timeout,
        "stream": None if stream is None else "yes" if stream else "no",
    }
    given = [f"--{option}={value}" for option, value in options.items() if value is not None]
    try:
        report = probe_apart([*given, "--", name], invocation.environment())
    except ProbeRefusedError as refused:
        complain(str(refused))
        raise typer.Exit(MISUSED) from refused
    if as_json:
        print_json(report)
    else:
        print_fields(probe_fields(report))
    if not succeeded(report):
        raise typer.Exit(FAILED)


@with_settings
def init(
    _: Invocation,
    provider: ProviderArgument,
    name: Annotated[str | None, typer.Option(help="What to call it. Left out: as the provider.")] = None,
) -> None:
    """Print the lines of fairlane.toml for a provider."""
    preset = preset_of(provider)
    if preset is None:
        wrong = unknown_provider(provider)
        raise ConfigurationError("PROVIDER", provider, wrong.problem, wrong.remedy)
    print_line(snippet(provider, preset, name or provider))


def _list_providers(as_json: bool) -> None:
    documents = [provider_document(name) for name in PROVIDERS]
    if as_json:
        print_json(documents)
        return
    rows = (
        (
            each["provider"],
            each["title"],
            each["protocol"],
            ", ".join(each["needs"]) or "nothing",
            ", ".join(each["lane_by"]),
            each["charge"],
            each["base_url"] or "your own",
        )
        for each in documents
    )
    print_table(PROVIDER_COLUMNS, rows)


def _require(settings: Settings, name: str) -> Connection:
    """The connection. Raises `ConfigurationError`."""
    if name not in settings.connections:
        known = ", ".join(settings.connections) or "none"
        remedy = f"Configured: {known}; `fairlane connections init PROVIDER` prints how to add one."
        raise ConfigurationError("NAME", name, "there is no such connection", remedy)
    return settings.connections[name]


def _first_model(name: str, connection: Connection, settings: Settings) -> str:
    lanes = (lane.partition(":") for lane in settings.lanes)
    named = [model for owner, _, model in lanes if owner == name and model]
    if not named:
        remedy = f"Say which model of {connection.provider or name} to ask: --model MODEL."
        raise ConfigurationError("--model", None, f"no lane in the settings names a model of {name}", remedy)
    return named[0]


def add_to(app: typer.Typer) -> None:
    """Put these commands into the application."""
    group = typer.Typer()
    group.callback(invoke_without_command=True)(connections)
    group.command("show")(show)
    group.command("test")(try_out)
    group.command("init")(init)
    app.add_typer(group, name="connections", rich_help_panel=OPERATIONS)
