"""``fairlane teams``: each team's own way in, that leads nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from fairlane.cli.deployment import Deployment, open_deployment
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.moments import iso
from fairlane.cli.output import print_json, print_line, print_table, say
from fairlane.cli.panels import OPERATIONS
from fairlane.cli.team_shares import bounds_in_words, part, percent, with_changes
from fairlane.errors import ConfigurationError
from fairlane.settings import TeamSettings
from fairlane.store.acl import (
    Access,
    Users,
    dashboard_access,
    dashboard_name,
    database_of,
    new_password,
    set_user_command,
    team_access,
    url_of,
    user_name,
)
from fairlane.store.audit import Act
from fairlane.store.registry import Registry, TeamRecord

NAME_CHARS = 64
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, _ and -.")]
PrintOption = Annotated[
    bool,
    typer.Option("--print", help="Change no user: print the rules, for a server that others manage."),
]


@with_settings
def add(
    invocation: Invocation,
    name: NameArgument,
    weight: Annotated[
        float | None,
        typer.Option(metavar="N", min=0.001, max=1000, help="Its share, relative to the others'."),
    ] = None,
    lendable: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="Of its share, what others may use while it does not."),
    ] = None,
    borrowing_limit: Annotated[
        str | None,
        typer.Option(metavar="PERCENT", help="Of its share, what it may take beyond it."),
    ] = None,
    most: Annotated[
        str | None,
        typer.Option("--max", metavar="PERCENT", help="Of a lane, the most that it ever takes."),
    ] = None,
    only_print: PrintOption = False,
) -> None:
    """Make a team known, and a user for its clients. Prints the URL by which they connect, once.

    Of a team that is there, what is given changes, and its user gets the rules of this version. A
    percentage of "none" is what the configuration has.
    """
    given = {"--lendable": lendable, "--borrowing-limit": borrowing_limit, "--max": most}
    changes = {option: percent(option, text) for option, text in given.items() if text is not None}
    with _opened(invocation, name) as deployment:
        before = Registry(deployment.redis, deployment.keys).get(name)
        if before is None:
            stated = deployment.settings.teams.get(name, TeamSettings()).weight
            before = TeamRecord(weight=stated, added_ms=deployment.now_ms())
        record = with_changes(before, weight, changes)
        access = _access(deployment, name)
        users = Users(deployment.redis)
        if only_print:
            _print_rules(deployment, access)
        else:
            users.require_selectors()
            if users.exists(access.user):
                users.renew(access)
                _tell_saved(users)
                say(f"team {name} has its user; `fairlane teams rotate {name}` gives it another password")
            else:
                _make(deployment, users, access)
        _record(deployment, name, Act.TEAM_ADDED, record)
    claim = record.over(deployment.settings.teams.get(name, TeamSettings()))
    say(f"team {name} has the weight {claim.weight:g}{bounds_in_words(claim)}")


@with_settings
def list_teams(invocation: Invocation, as_json: JsonOption = False) -> None:
    """List the teams, their weights, and who of them has a user."""
    with open_deployment(invocation) as deployment:
        made = Registry(deployment.redis, deployment.keys).all()
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
                    "weight": claim.weight,
                    "lendable_percent": claim.lendable_percent,
                    "borrowing_limit_percent": claim.borrowing_limit_percent,
                    "max_percent": claim.max_percent,
                    "added": iso(record.added_ms) if record else None,
                    "passwords": passwords,
                    "dashboard": dashboard,
                }
            )
    if as_json:
        print_json(found)
    elif found:
        columns = ["team", ">weight", ">lends", ">borrows", ">most", "user", "dashboard"]
        print_table(
            columns,
            (
                (
                    t["team"],
                    f"{t['weight']:g}",
                    part(t["lendable_percent"]),
                    part(t["borrowing_limit_percent"]),
                    part(t["max_percent"]),
                    _user(t),
                    _yes(t["dashboard"]),
                )
                for t in found
            ),
        )
    else:
        say("there are no teams yet: `fairlane teams add NAME` makes one")


@with_settings
def rotate(
    invocation: Invocation,
    name: NameArgument,
    finish: Annotated[
        bool, typer.Option("--finish", help="Every client has the new one: drop those before.")
    ] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Of the user that only reads.")] = False,
) -> None:
    """Give a team's user a second password; the first goes on to work until --finish."""
    with _opened(invocation, name) as deployment:
        users = Users(deployment.redis)
        user = (dashboard_name if dashboard else user_name)(deployment.settings.redis.deployment, name)
        held = len(users.passwords(user))
        if not users.exists(user):
            make = f"fairlane teams {'dashboard' if dashboard else 'add'} {name}"
            raise ConfigurationError("NAME", name, "has no user on this server", f"`{make}` makes one.")
        if finish:
            dropped = users.drop_older(user)
            _tell_saved(users)
            _audit(deployment, name, Act.TEAM_ROTATED, finished=True)
            say(f"{dropped} older {'password is' if dropped == 1 else 'passwords are'} dropped")
            return
        if held > 1:
            problem = "has two passwords already: one of them is on its way out"
            raise ConfigurationError(
                "NAME", name, problem, f"`fairlane teams rotate {name} --finish` drops it."
            )
        password = new_password()
        users.add_password(user, password)
        _tell_saved(users)
        _audit(deployment, name, Act.TEAM_ROTATED, finished=False)
        print_line(url_of(deployment.settings.redis.url, user, password))
    say(f"both passwords work; once every client has this URL: `fairlane teams rotate {name} --finish`")


@with_settings
def remove(invocation: Invocation, name: NameArgument) -> None:
    """Take a team's users away and forget the team. Its runs go on, and stay until they expire."""
    with _opened(invocation, name) as deployment:
        users, whole = Users(deployment.redis), deployment.settings.redis.deployment
        gone = [users.remove(user) for user in (user_name(whole, name), dashboard_name(whole, name))]
        known = Registry(deployment.redis, deployment.keys).remove(name)
        if not (known or any(gone)):
            raise ConfigurationError(
                "NAME", name, "is no team that was added", "`fairlane teams list` names them."
            )
        _tell_saved(users)
        _audit(deployment, name, Act.TEAM_REMOVED)
    say(f"team {name} is removed; its clients are disconnected")


@with_settings
def dashboard(invocation: Invocation, name: NameArgument, only_print: PrintOption = False) -> None:
    """Make a user that reads a team's runs and changes nothing. Prints its URL, once."""
    with _opened(invocation, name) as deployment:
        keys, whole = deployment.keys, deployment.settings.redis.deployment
        access = dashboard_access(keys, whole, name, database=database_of(deployment.redis))
        if only_print:
            _print_rules(deployment, access)
            return
        users = Users(deployment.redis)
        users.require_selectors()
        if users.exists(access.user):
            remedy = f"`fairlane teams rotate {name} --dashboard` gives it another password."
            raise ConfigurationError("NAME", name, "has its dashboard's user", remedy)
        _make(deployment, users, access)
        _audit(deployment, name, Act.TEAM_ADDED, dashboard=True)


@contextmanager
def _opened(invocation: Invocation, name: str) -> Iterator[Deployment]:
    if not (
        0 < len(name) <= NAME_CHARS and name.isascii() and name.replace("-", "").replace("_", "x").isalnum()
    ):
        raise ConfigurationError("NAME", name, "is no team's name", "Letters, digits, _ and -, 64 at most.")
    with open_deployment(invocation) as deployment:
        yield deployment


def _access(deployment: Deployment, name: str) -> Access:
    whole = deployment.settings.redis.deployment
    return team_access(deployment.keys, whole, name, database=database_of(deployment.redis))


def _make(deployment: Deployment, users: Users, access: Access) -> None:
    password = new_password()
    users.make(access, password)
    _tell_saved(users)
    print_line(url_of(deployment.settings.redis.url, access.user, password))
    if users.is_open():
        say("the server's default user needs no password: whoever reaches it may still do anything")


def _print_rules(deployment: Deployment, access: Access) -> None:
    password = new_password()
    print_line(set_user_command(Users(deployment.redis).suited(access), password))
    url = url_of(deployment.settings.redis.url, access.user, password)
    say(f"once that is done, clients connect to {url}")


def _tell_saved(users: Users) -> None:
    if not users.save():
        say("the server keeps its users in memory alone: give it an aclfile, or they go when it restarts")


def _record(deployment: Deployment, name: str, act: Act, record: TeamRecord) -> None:
    pipeline = deployment.redis.pipeline(transaction=True)
    Registry(pipeline, deployment.keys).put(name, record)
    deployment.auditor.append(
        pipeline,
        deployment.keys,
        act,
        name,
        name,
        **record.model_dump(exclude={"added_ms"}, exclude_none=True),
    )
    pipeline.execute()


def _audit(deployment: Deployment, name: str, act: Act, **detail: bool) -> None:
    deployment.auditor.append(deployment.redis, deployment.keys, act, name, name, **detail)


def _users_of(deployment: Deployment, name: str) -> tuple[int | None, bool | None]:
    """How many passwords a team's user has, and whether its dashboard has one; ``None``: not told."""
    users, whole = Users(deployment.redis), deployment.settings.redis.deployment
    try:
        return len(users.passwords(user_name(whole, name))), users.exists(dashboard_name(whole, name))
    except ConfigurationError:
        return None, None


def _user(team: dict[str, object]) -> str:
    passwords = team["passwords"]
    return "?" if passwords is None else {0: "no", 1: "yes"}.get(int(str(passwords)), "yes, rotating")


def _yes(value: object) -> str:
    return "?" if value is None else "yes" if value else "no"


def add_to(app: typer.Typer) -> None:
    """Put these commands into the application."""
    group = typer.Typer(no_args_is_help=True, help="Give each team a user of its own on the server.")
    group.command("add")(add)
    group.command("list")(list_teams)
    group.command("rotate")(rotate)
    group.command("remove")(remove)
    group.command("dashboard")(dashboard)
    app.add_typer(group, name="teams", rich_help_panel=OPERATIONS)
