"""The options that every command takes, before or after its name, and the settings that result."""

from __future__ import annotations

import functools
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args

import typer

from fairlane.cli.output import say
from fairlane.core.errors import ConfigurationError

if TYPE_CHECKING:
    from fairlane.client.deployment import Deployment
    from fairlane.config.problems import Layer
    from fairlane.config.settings import Settings

R = TypeVar("R")


def expanded(value: Any) -> Any:
    """Expand ``~`` in an option's path or paths; any other value stays."""
    from fairlane.core.paths import at_home

    if isinstance(value, list):
        return [expanded(each) for each in value]
    return at_home(value) if isinstance(value, Path) else value


ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        callback=expanded,
        help="Settings. Default: FAIRLANE_CONFIG, else ./fairlane.toml.",
    ),
]
RedisOption = Annotated[
    str | None, typer.Option("--redis", metavar="URL", help="Redis to use, instead of the configured one.")
]
TeamOption = Annotated[str | None, typer.Option("--team", metavar="NAME", help="The team to act for.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

_SHARED: dict[str, Any] = {"config": ConfigOption, "redis": RedisOption, "team": TeamOption}


NO_LIMIT = "none"
_GROUPED = re.compile(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]+)?", re.ASCII)


def read_limit(option: str, written: str, remedy: str) -> float | None:
    """A number such as ``1,000`` or ``2.5``; ``None`` for "none". Raises `ConfigurationError`."""
    plain = written.strip()
    if plain.lower() == NO_LIMIT:
        return None
    if _GROUPED.fullmatch(plain):
        plain = plain.replace(",", "")
    try:
        number = float(plain)
    except ValueError:
        raise ConfigurationError(option, written, "is no number", remedy) from None
    return int(number) if number.is_integer() else number


@dataclass(frozen=True, slots=True)
class Invocation:
    """The options of a command line that select settings; ``None`` for one that is not given."""

    config: Path | None = None
    redis: str | None = None
    team: str | None = None
    _warned: set[str] = field(default_factory=set, compare=False, repr=False)

    def or_else(self, other: Invocation) -> Invocation:
        """These options, completed by those of ``other``."""
        return Invocation(self.config or other.config, self.redis or other.redis, self.team or other.team)

    def settings(self, **overrides: Any) -> Settings:
        """Load the settings in force, and print each warning about ignored variables once.

        Raises `ConfigurationError`.
        """
        from fairlane.config.loader import load_settings
        from fairlane.config.problems import ConfigurationWarning

        redis = {"url": self.redis} if self.redis else None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConfigurationWarning)
            try:
                return load_settings(self.config, redis=redis, team=self.team, **overrides)
            finally:
                for words in dict.fromkeys(str(each.message) for each in caught):
                    if words not in self._warned:
                        self._warned.add(words)
                        say(f"warning: {words}")

    def layers(self) -> tuple[Layer, ...]:
        """The sources of the settings in force, highest precedence first. Raises `ConfigurationError`."""
        from fairlane.config.loader import read_layers

        redis = {"url": self.redis} if self.redis else None
        return read_layers(self.config, redis=redis, team=self.team)

    @contextmanager
    def deployment(self) -> Iterator[Deployment]:
        """Connect to the deployment of the settings in force; the audit log names this user for changes.

        Raises `ConfigurationError`, and `StoreUnavailable` also for failures inside the block.
        """
        from fairlane.client.deployment import Deployment
        from fairlane.store.write.audit import Auditor, operator

        settings = self.settings()
        auditor = Auditor("operator", operator(), settings.audit.keep)
        deployment = Deployment.open(settings, auditor)
        try:
            with deployment.answering():
                deployment.require()
                yield deployment
        finally:
            deployment.close()

    def environment(self) -> dict[str, str]:
        """Variables that lead another process to the same settings."""
        found = {
            "FAIRLANE_CONFIG": str(self.config.absolute()) if self.config else None,
            "FAIRLANE_REDIS__URL": self.redis,
            "FAIRLANE_TEAM": self.team,
        }
        return {name: value for name, value in found.items() if value is not None}


def with_settings(command: Callable[..., R]) -> Callable[..., R | None]:
    """Add ``--config``, ``--redis`` and ``--team`` to a command. Its first argument is their `Invocation`.

    Options after the command's name win over those before it. The callback of a group of commands runs only
    if no command of the group follows. A parameter of a dataclass type becomes one option for each field,
    with the field's docstring as help. So does ``Annotated[dict[str, str], Model]`` for a pydantic model: the
    dict has what was given, as it was written.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    models = {each.name: model for each in own if (model := _model_of(each)) is not None}
    bundles: dict[str, Any] = {each.name: each.annotation for each in own if is_dataclass(each.annotation)}

    @functools.wraps(command)
    def run(
        ctx: typer.Context, config: Path | None, redis: str | None, team: str | None, **options: Any
    ) -> R | None:
        options = {name: expanded(value) for name, value in options.items()}
        before = ctx.obj if isinstance(ctx.obj, Invocation) else Invocation()
        ctx.obj = invocation = Invocation(config, redis, team).or_else(before)
        for name, model in models.items():
            given = {each: options.pop(each) for each in model.model_fields}
            options[name] = {each: text for each, text in given.items() if text is not None}
        for name, bundle in bundles.items():
            options[name] = bundle(**{each.name: options.pop(each.name) for each in fields(bundle)})
        return None if ctx.invoked_subcommand else command(invocation, **options)

    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [inspect.Parameter(n, keyword, default=None, annotation=a) for n, a in _SHARED.items()]
    context = inspect.Parameter("ctx", keyword, annotation=typer.Context)
    flat = [part for each in own for part in _options_of(each)]
    parameters = [context, *(parameter.replace(kind=keyword) for parameter in flat), *shared]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def existing_file(path: Path | None) -> Path | None:
    """Expand an option's path. Raises ``typer.BadParameter`` where it leads to no file."""
    file: Path | None = expanded(path)
    if file is not None and not file.is_file():
        problem = "is a directory" if file.exists() else "does not exist"
        raise typer.BadParameter(f"File {str(path)!r} {problem}.")
    return file


def _model_of(parameter: inspect.Parameter) -> Any:
    """The pydantic model whose fields a parameter takes as options; ``None`` for other parameters."""
    return next((each for each in get_args(parameter.annotation)[1:] if hasattr(each, "model_fields")), None)


def _options_of(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    if (model := _model_of(parameter)) is not None:
        return [_option_of(name, field.annotation, model) for name, field in model.model_fields.items()]
    if not is_dataclass(parameter.annotation):
        return [parameter]
    from fairlane.core.section import docstrings_of

    bundle = cast(type, parameter.annotation)
    options = list(inspect.signature(bundle, eval_str=True).parameters.values())
    for each in options:
        _, option = get_args(each.annotation)
        option.help = docstrings_of(bundle).get(each.name)
    return options


def _option_of(name: str, kind: Any, model: Any) -> inspect.Parameter:
    from fairlane.core.section import descriptions

    words = "|".join(each for each in get_args(kind) if isinstance(each, str))
    option = typer.Option(metavar=words or ("BOOL" if kind is bool else "N"), help=descriptions(model)[name])
    annotation = Annotated[str | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
