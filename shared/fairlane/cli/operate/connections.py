"""``fairlane connections``: lists connections, shows what each needs, and tests one with a call."""

import re
from typing import Annotated

import typer

from fairlane.cli.failures import FAILED, MISUSED
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.operate.connection_probe import ProbeRefusedError, probe_fields, run_probe, succeeded
from fairlane.cli.operate.connection_views import (
    connection_document,
    connection_fields,
    connection_row,
    provider_document,
    snippet,
)
from fairlane.cli.output import complain, emit, print_fields, print_line, print_table, say
from fairlane.config.connections.checks import unknown_provider
from fairlane.config.connections.connection import Connection
from fairlane.config.connections.presets import all_presets, preset_of
from fairlane.config.loader import load_secrets
from fairlane.config.sections import CONNECTION_NAME
from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError

app = typer.Typer()
group = typer.Typer()
app.add_typer(group, name="connections")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As `fairlane connections` lists it.")]
ProviderArgument = Annotated[
    str, typer.Argument(metavar="PROVIDER", help="As `fairlane connections --providers` lists it.")
]
CONNECTION_COLUMNS = ("connection", "provider", "protocol", "address", "key", "lanes by", "lacks")
PROVIDER_COLUMNS = ("provider", "name", "protocol", "needs", "lanes by", "charges", "address")


@group.callback(invoke_without_command=True)
@with_settings
def connections(
    invocation: Invocation,
    providers: Annotated[
        bool, typer.Option("--providers", help="List the providers that have a preset.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the connections to providers and what each lacks in this environment; test one.

    This reads only the settings, and needs neither Redis nor a scheduler.
    """
    settings = invocation.settings()
    if not settings.connections and not providers:
        say("no connection is configured; these providers are known by name:")
    if providers or not settings.connections:
        _list_providers(as_json)
        return
    secrets = load_secrets(settings)
    documents = [connection_document(name, settings, secrets) for name in settings.connections]
    emit(documents, lambda: print_table(CONNECTION_COLUMNS, map(connection_row, documents)), as_json=as_json)


@group.command("show")
@with_settings
def show(invocation: Invocation, name: NameArgument, as_json: JsonOption = False) -> None:
    """Show all about one connection."""
    settings = invocation.settings()
    _require(settings, name)
    document = connection_document(name, settings, load_secrets(settings))
    emit(document, lambda: print_fields(connection_fields(document)), as_json=as_json)


@group.command("test")
@with_settings
def try_out(
    invocation: Invocation,
    name: NameArgument,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", help="Default: the model of its first lane."),
    ] = None,
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="Prompt of the call.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Most tokens of the answer, 256; 0: send no limit.")
    ] = None,
    stream: Annotated[
        bool | None, typer.Option("--stream/--whole", help="Default: what the connection configures.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(min=0.1, metavar="S", help="Seconds to wait, 60.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make one call with this environment's key, and report what it shows of the provider.

    A separate process makes it as a worker would, without Redis; no lane counts it. Ends with 0 if there is
    an answer, with 1 if there is none, with 2 if no call could be made.
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
        report = run_probe([*given, "--", name], invocation.environment())
    except ProbeRefusedError as refused:
        complain(str(refused))
        raise typer.Exit(MISUSED) from refused
    emit(report, lambda: print_fields(probe_fields(report)), as_json=as_json)
    if not succeeded(report):
        raise typer.Exit(FAILED)


@group.command("init")
@with_settings
def init(
    _: Invocation,
    provider: ProviderArgument,
    name: Annotated[
        str | None, typer.Option(help="Name of the connection. Default: the name of the provider.")
    ] = None,
) -> None:
    """Print the lines of fairlane.toml for a provider."""
    preset = preset_of(provider)
    if preset is None:
        wrong = unknown_provider(provider)
        raise ConfigurationError("PROVIDER", provider, wrong.problem, wrong.remedy)
    if name and not re.fullmatch(CONNECTION_NAME, name):
        remedy = "A name is up to 64 letters, digits and the characters _ . -"
        raise ConfigurationError("--name", name, "no connection may have this name", remedy)
    print_line(snippet(provider, preset, name or provider))


def _list_providers(as_json: bool) -> None:
    documents = [provider_document(name, preset) for name, preset in all_presets().items()]
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
    emit(documents, lambda: print_table(PROVIDER_COLUMNS, rows), as_json=as_json)


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
