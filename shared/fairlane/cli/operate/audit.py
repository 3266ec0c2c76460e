"""``fairlane audit``: who has changed what, and when."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import at_local_time, fields_of, iso, print_json_line, print_line, say
from fairlane.client.deployment import Deployment
from fairlane.core.terminal_text import visible_line
from fairlane.store.write.audit import Audited, AuditLog

app = typer.Typer()

WAIT_MS = 1000
_SECONDS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}
_AGE = re.compile(r"(\d{1,9})\s*(s|min|m|h|d)", re.ASCII)


@app.command()
@with_settings
def audit(
    invocation: Invocation,
    since: Annotated[
        str | None, typer.Option("--since", metavar="AGE", help="Such as 90s, 30min, 1h or 7d. Default: all.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new entries as they come.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show who submitted, cancelled or changed a limit, and when; --team selects one team.

    With --json, each line is one entry.
    """
    age_ms = None if since is None else _age_ms(since)
    with invocation.deployment() as deployment:
        log, printed = AuditLog(deployment.redis, deployment.keys), False
        from_ms = 0 if age_ms is None else max(1, deployment.now_ms() - age_ms)
        for entry in _entries(log, from_ms, invocation.team, follow=follow):
            _print(entry, deployment, as_json=as_json)
            printed = True
    if not (printed or as_json):
        say("the audit log has no such entry")


def _entries(log: AuditLog, from_ms: int, team: str | None, *, follow: bool) -> Iterator[Audited]:
    last = log.last()
    for entry in log.since(from_ms, team):
        last = max(last, entry.id, key=_place)
        yield entry
    while follow:
        last, found = log.following(last, WAIT_MS, team)
        yield from found


_AS_SET = {"burst_ms": "burst_seconds"}
"""The settings' names of limits that have another name in Redis."""


def _place(identity: str) -> tuple[int, int]:
    at, _, number = identity.partition("-")
    return int(at), int(number)


def _print(entry: Audited, deployment: Deployment, *, as_json: bool) -> None:
    if as_json:
        print_json_line(document(entry))
        return
    when = at_local_time(entry.at_ms, deployment.now_ms())
    what = f"{entry.team}/{entry.what}" if entry.team else entry.what
    line = f"{when}  {entry.who or entry.role}  {entry.act}  {what}  {in_words(entry.detail)}"
    print_line(visible_line(line.rstrip()))


def document(entry: Audited) -> dict[str, Any]:
    """An audit entry as JSON."""
    return {
        "id": entry.id,
        "at": iso(entry.at_ms),
        **fields_of(entry, "role", "who", "act"),
        "team": entry.team or None,
        "what": entry.what,
        "detail": dict(entry.detail),
    }


def in_words(detail: Mapping[str, Any]) -> str:
    """``requests_per_minute 60 → 120`` for what was changed, ``name=value`` for all else."""
    before, after = detail.get("before"), detail.get("after")
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        changes = (
            f"{_AS_SET.get(name, name)} {_limit(name, before.get(name))} → {_limit(name, after[name])}"
            for name in sorted(after)
        )
        return ", ".join(changes)
    return " ".join(f"{name}={_value(detail[name])}" for name in sorted(detail))


def _limit(name: str, value: object) -> str:
    """A value as users set it: Redis has bursts in milliseconds, and true as 1."""
    if name == "burst_ms" and value is not None:
        return f"{float(str(value)) / 1000:g}"
    return {"1": "true", "0": "false"}.get(str(value), _value(value)) if name == "exact" else _value(value)


def _value(value: object) -> str:
    return "none" if value is None else str(value)


def _age_ms(text: str) -> int:
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age: write it as 90s, 30min, 1h or 7d")
    return int(found[1]) * _SECONDS[found[2]] * 1000
