"""``fairlane teams``: a Redis user for each team, its weight and its shares."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from fairlane.cli.failures import after
from fairlane.cli.invocation import NO_LIMIT, Invocation, JsonOption, with_settings
from fairlane.cli.output import emit, fields_of, iso, print_line, print_table, say
from fairlane.client.deployment import Deployment
from fairlane.config.sections import TeamSettings
from fairlane.core.errors import ConfigurationError
from fairlane.core.section import first_flaw
from fairlane.store.write import acl
from fairlane.store.write.audit import Act
from fairlane.store.write.registry import TeamRecord

app = typer.Typer()
group = typer.Typer(no_args_is_help=True, help="Give each team its own Redis user; set weights and shares.")
app.add_typer(group, name="teams")

NAME_CHARS = 64
ALL = 100.0
_FIELDS = {
    "--lendable": "lendable_percent",
    "--borrowing-limit": "borrowing_limit_percent",
    "--max": "max_percent",
}
_RANGES = {
    "--lendable": f'Give 0 to 100, or "{NO_LIMIT}".',
    "--borrowing-limit": f'Give 0 or more, or "{NO_LIMIT}".',
    "--max": f'Give more than 0, up to 100, or "{NO_LIMIT}".',
}
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, _ and -.")]
PrintOption = Annotated[
    bool,
    typer.Option("--print", help="Print the user's rules and change nothing, if others manage the server."),
]


@group.command("add")
@with_settings
def add(
    invocation: Invocation,
    name: NameArgument,
    weight: Annotated[
        float | None,
        typer.Option(metavar="N", min=0.001, max=1000, help="The team's share, relative to other teams."),
    ] = None,
    lendable: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="Percent of its share that others may use while it does not."),
    ] = None,
    borrowing_limit: Annotated[
        str | None, typer.Option(metavar="PERCENT", help="Percent of its share that it may use beyond it.")
    ] = None,
    most: Annotated[
        str | None, typer.Option("--max", metavar="PERCENT", help="Most percent of a lane that it may use.")
    ] = None,
    only_print: PrintOption = False,
) -> None:
    """Add a team and a Redis user for its clients. Prints their connection URL once.

    For an existing team, this changes the options that you give and updates its user's rules. The
    percentage "none" restores the configured value.
    """
    given = {"--lendable": lendable, "--borrowing-limit": borrowing_limit, "--max": most}
    changes = {option: read_percent(option, text) for option, text in given.items() if text is not None}
    with _deployment_for(invocation, name) as deployment:
        before = deployment.registry.get(name)
        if before is None:
            stated = deployment.settings.teams.get(name, TeamSettings()).weight
            before = TeamRecord(weight=stated, added_ms=deployment.now_ms())
        record = with_changes(before, weight, changes)
        keys, deployment_name = deployment.keys, deployment.settings.redis.deployment
        access = acl.team_access(keys, deployment_name, name, database=acl.database_of(deployment.redis))
        users = acl.Users(deployment.redis)
        if only_print:
            _print_rules(deployment, access)
        else:
            users.require_selectors()
            if users.exists(access.user):
                users.renew(access)
                _save_users(users)
                say(f"team {name} has its user; `fairlane teams rotate {name}` gives it another password")
            else:
                _add_user(deployment, users, access)
        deployment.registry.put_audited(name, record, Act.TEAM_ADDED, deployment.auditor)
    claim = record.over(deployment.settings.teams.get(name, TeamSettings()))
    say(f"team {name} has the weight {claim.weight:g}{bounds_in_words(claim)}")


@group.command("list")
@with_settings
def list_teams(invocation: Invocation, as_json: JsonOption = False) -> None:
    """List the teams, their weights, and which have a Redis user."""
    with invocation.deployment() as deployment:
        made = deployment.registry.all()
        stated = deployment.settings.teams
        found = []
        for name in sorted({*made, *stated}):
            record = made.get(name)
            base = stated.get(name, TeamSettings())
            claim = record.over(base) if record else base
            passwords, dashboard = _users_of(deployment, name)
            found.append(
                {
                    "team": name,
                    **fields_of(claim, "weight", *_FIELDS.values()),
                    "added": iso(record.added_ms) if record else None,
                    "passwords": passwords,
                    "dashboard": dashboard,
                }
            )
    emit(found, lambda: _print_teams(found), as_json=as_json)


def _print_teams(found: Sequence[Mapping[str, Any]]) -> None:
    if not found:
        say("there are no teams yet: `fairlane teams add NAME` makes one")
        return
    rows = (
        (
            team["team"],
            f"{team['weight']:g}",
            percent_in_words(team["lendable_percent"]),
            percent_in_words(team["borrowing_limit_percent"]),
            percent_in_words(team["max_percent"]),
            _user(team),
            _yes(team["dashboard"]),
        )
        for team in found
    )
    print_table(["team", ">weight", ">lends", ">borrows", ">most", "user", "dashboard"], rows)


@group.command("rotate")
@with_settings
def rotate(
    invocation: Invocation,
    name: NameArgument,
    finish: Annotated[
        bool, typer.Option("--finish", help="All clients have the new password: remove the old ones.")
    ] = False,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Rotate the password of the team's read-only user.")
    ] = False,
) -> None:
    """Give a team's user a second password; the first works until --finish."""
    with _deployment_for(invocation, name) as deployment:
        users = acl.Users(deployment.redis)
        name_of = acl.dashboard_name if dashboard else acl.user_name
        user = name_of(deployment.settings.redis.deployment, name)
        held = len(users.passwords(user))
        if not users.exists(user):
            make = f"fairlane teams {'dashboard' if dashboard else 'add'} {name}"
            raise ConfigurationError("NAME", name, "has no user on this server", f"`{make}` makes one.")
        if finish:
            dropped = users.drop_older(user)
            _save_users(users)
            _audit(deployment, name, Act.TEAM_ROTATED, finished=True)
            say(f"{dropped} older {'password is' if dropped == 1 else 'passwords are'} removed")
            return
        if held > 1:
            problem = "has two passwords already"
            remedy = f"`fairlane teams rotate {name} --finish` removes the older one."
            raise ConfigurationError("NAME", name, problem, remedy)
        password = acl.new_password()
        users.add_password(user, password)
        _save_users(users)
        _audit(deployment, name, Act.TEAM_ROTATED, finished=False)
        with after(f"user {user} has a second password"):
            print_line(acl.url_of(deployment.settings.redis.url, user, password))
    say(f"both passwords work; once every client has this URL: `fairlane teams rotate {name} --finish`")


@group.command("remove")
@with_settings
def remove(invocation: Invocation, name: NameArgument) -> None:
    """Remove a team and its users. Its runs continue, and stay until they expire."""
    with _deployment_for(invocation, name) as deployment:
        users, deployment_name = acl.Users(deployment.redis), deployment.settings.redis.deployment
        gone = [users.remove(of(deployment_name, name)) for of in (acl.user_name, acl.dashboard_name)]
        known = deployment.registry.remove(name)
        if not (known or any(gone)):
            remedy = "`fairlane teams list` names them."
            raise ConfigurationError("NAME", name, "was not added as a team", remedy)
        _save_users(users)
        _audit(deployment, name, Act.TEAM_REMOVED)
    say(f"team {name} is removed; its clients are disconnected")


@group.command("dashboard")
@with_settings
def dashboard(invocation: Invocation, name: NameArgument, only_print: PrintOption = False) -> None:
    """Add a Redis user that can only read a team's runs. Prints its URL once."""
    with _deployment_for(invocation, name) as deployment:
        keys, deployment_name = deployment.keys, deployment.settings.redis.deployment
        access = acl.dashboard_access(keys, deployment_name, name, database=acl.database_of(deployment.redis))
        if only_print:
            _print_rules(deployment, access)
            return
        users = acl.Users(deployment.redis)
        users.require_selectors()
        if users.exists(access.user):
            remedy = f"`fairlane teams rotate {name} --dashboard` gives it another password."
            raise ConfigurationError("NAME", name, "has a dashboard user already", remedy)
        _add_user(deployment, users, access)
        _audit(deployment, name, Act.TEAM_ADDED, dashboard=True)


@contextmanager
def _deployment_for(invocation: Invocation, name: str) -> Iterator[Deployment]:
    if not (
        0 < len(name) <= NAME_CHARS and name.isascii() and name.replace("-", "").replace("_", "x").isalnum()
    ):
        raise ConfigurationError("NAME", name, "is no team's name", "Letters, digits, _ and -, 64 at most.")
    with invocation.deployment() as deployment:
        yield deployment


def _add_user(deployment: Deployment, users: acl.Users, access: acl.Access) -> None:
    password = acl.new_password()
    users.make(access, password)
    _save_users(users)
    with after(f"user {access.user} was added, and `fairlane teams rotate` gives it a password"):
        print_line(acl.url_of(deployment.settings.redis.url, access.user, password))
    if users.is_open():
        say("the server's default user needs no password: anybody who reaches the server can do anything")


def _print_rules(deployment: Deployment, access: acl.Access) -> None:
    password = acl.new_password()
    print_line(acl.set_user_command(acl.Users(deployment.redis).suited(access), password))
    url = acl.url_of(deployment.settings.redis.url, access.user, password)
    say(f"once that is done, clients connect to {url}")


def _save_users(users: acl.Users) -> None:
    if not users.save():
        say("the server keeps users in memory alone: configure its aclfile, or a restart removes them")


def _audit(deployment: Deployment, name: str, act: Act, **detail: bool) -> None:
    deployment.auditor.append(deployment.redis, deployment.keys, act, name, name, **detail)


def _users_of(deployment: Deployment, name: str) -> tuple[int | None, bool | None]:
    """How many passwords a team's user has, and whether its dashboard has one; ``None``: no access."""
    users, deployment_name = acl.Users(deployment.redis), deployment.settings.redis.deployment
    user, dashboard_user = (of(deployment_name, name) for of in (acl.user_name, acl.dashboard_name))
    try:
        return len(users.passwords(user)), users.exists(dashboard_user)
    except ConfigurationError:
        return None, None


def _user(team: Mapping[str, object]) -> str:
    passwords = team["passwords"]
    return "?" if passwords is None else {0: "no", 1: "yes"}.get(int(str(passwords)), "yes, rotating")


def _yes(value: object) -> str:
    return "?" if value is None else "yes" if value else "no"


def with_changes(before: TeamRecord, weight: float | None, changes: Mapping[str, float | None]) -> TeamRecord:
    """A team's record with a new weight (``None``: the old one), and new percentages by option.

    Raises `ConfigurationError` for a percentage out of range.
    """
    said = {_FIELDS[option]: value for option, value in changes.items()}
    if weight is not None:
        said["weight"] = weight
    try:
        return TeamRecord.model_validate(before.model_dump() | said)
    except ValidationError as error:
        field = first_flaw(error).place
        option = next(option for option, of in _FIELDS.items() if of == field)
        raise ConfigurationError(option, said[field], "is out of range", _RANGES[option]) from None


def read_percent(option: str, text: str) -> float | None:
    """A percentage, or ``None`` for "none". Raises `ConfigurationError`."""
    if text.strip().lower() == NO_LIMIT:
        return None
    try:
        return float(text.strip().removesuffix("%"))
    except ValueError:
        raise ConfigurationError(option, text, "is no percentage", _RANGES[option]) from None


def bounds_in_words(claim: TeamSettings) -> str:
    """A team's bounds as the end of a sentence: ``", lends 50 %"``; empty without bounds."""
    said = {
        "lends": claim.lendable_percent if claim.lendable_percent < ALL else None,
        "borrows at most": claim.borrowing_limit_percent,
        "never has more of a lane than": claim.max_percent,
    }
    return "".join(
        f", {words} {percent_in_words(value)}" for words, value in said.items() if value is not None
    )


def percent_in_words(percent: object) -> str:
    """``"50 %"``; ``"any"`` for ``None``."""
    return "any" if percent is None else f"{percent:g} %"
