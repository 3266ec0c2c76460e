"""Budgets over time: what each team may use in a day or a month, and how much of it is used."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

from pydantic import ValidationError

from fairlane.config.sections import Budget
from fairlane.core.clock import TIME_FIELDS, ahead_at
from fairlane.core.errors import ConfigurationError
from fairlane.core.figures import dollars
from fairlane.core.section import first_flaw
from fairlane.store.connection.connect import RedisClient
from fairlane.store.connection.server_states import RETYPED, refusing_state
from fairlane.store.keys import Keys
from fairlane.store.run_queries import ask_each
from fairlane.store.script import Call
from fairlane.store.write.attempts import bound, named_keys
from fairlane.store.write.audit import UNNAMED, Act, Auditor

ALL_LANES = "*"
NEARLY = 0.8
READ_AT_ONCE = 100
KEEP_MS = 62 * 86_400_000
"""A team's hash without a limit is kept until no period in it can be the present one."""

Per: TypeAlias = Literal["day", "month"]
Unit: TypeAlias = Literal["requests", "tokens", "usd"]

_SCALE = {"usd": 1e9}
"""Money is counted in billionths of a dollar."""


class Period(NamedTuple):
    """A day or a month in UTC: its name, and when the next one begins, in milliseconds."""

    name: str
    end_ms: int


def period_of(per: Per, now_ms: int) -> Period:
    """The period that a moment is in, as ``lib/team/budget.lua`` has it."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if per == "day":
        return Period(f"{now:%Y-%m-%d}", _ms(midnight + timedelta(days=1)))
    beyond = midnight.replace(day=1) + timedelta(days=31)
    return Period(f"{now:%Y-%m}", _ms(beyond.replace(day=1)))


@dataclass(frozen=True, slots=True)
class Allowance:
    """One budget of a team in its present period. Amounts are calls, tokens or dollars.

    ``used`` includes what calls in flight have reserved. ``held``: a job waits for the period's end.
    ``logged``: the period and state of its latest log event.
    """

    team: str
    lane: str
    per: Per
    unit: Unit
    most: float
    used: float
    held: bool
    period: Period
    logged: str = ""

    @property
    def share(self) -> float:
        """The used part of the budget; above 1 if it was exceeded."""
        return self.used / self.most

    @property
    def state(self) -> Literal["open", "nearly_used", "used_up"]:
        """``used_up``: nothing is left, or jobs wait for the period's end. ``nearly_used``: from 80 % on."""
        if self.held or self.used >= self.most:
            return "used_up"
        return "nearly_used" if self.share >= NEARLY else "open"

    @property
    def is_news(self) -> bool:
        """Whether it is nearly used or used up, and this is not logged yet in this period."""
        known = (f"{self.period.name} {self.state}", f"{self.period.name} used_up")
        return self.state != "open" and self.logged not in known

    @property
    def name(self) -> str:
        """``"team budget of 1,000,000 tokens a day on openai:gpt-4o"``."""
        where = "" if self.lane == ALL_LANES else f" on {self.lane}"
        return f"team budget of {amount_in_words(self.unit, self.most)} a {self.per}{where}"

    @property
    def end_in_words(self) -> str:
        """``"00:00 UTC"``, ``"1 December, 00:00 UTC"``."""
        end = datetime.fromtimestamp(self.period.end_ms / 1000, UTC)
        return "00:00 UTC" if self.per == "day" else f"{end.day} {end:%B}, 00:00 UTC"


def amount_in_words(unit: Unit, amount: float) -> str:
    """``"1,000 tokens"``, ``"$2.50"``, ``"$0.0004"``."""
    if unit == "usd":
        return dollars(amount)
    return f"{amount:,.0f} {unit}"


class Budgets:
    """All teams' budgets. A limit that was set at run time stays until its configuration changes."""

    def __init__(self, redis: RedisClient, keys: Keys, auditor: Auditor = UNNAMED) -> None:
        self._redis, self._keys, self._auditor = redis, keys, auditor

    def teams(self) -> list[str]:
        """Teams that have budgets."""
        return sorted(team.decode() for team in self._redis.smembers(self._keys.budgets))

    def some_teams(self, cursor: int) -> tuple[int, list[str]]:
        """About `READ_AT_ONCE` of these teams from ``cursor`` on, and the next cursor; 0 at the end."""
        cursor, found = self._redis.sscan(self._keys.budgets, cursor, count=READ_AT_ONCE)
        return int(cursor), [team.decode() for team in found]

    def set(self, team: str, per: Per, limits: Mapping[str, float | None], lane: str = ALL_LANES) -> None:
        """Set a team's limits by unit, on a lane or on all lanes; ``None`` removes one. Its usage so far
        stays.

        Raises `ConfigurationError` for an invalid limit.
        """
        stated = {unit: most for unit, most in limits.items() if most is not None}
        for unit in limits:
            if unit not in get_args(Unit):
                raise ConfigurationError(unit, unit, "is no unit", f"Units are {', '.join(get_args(Unit))}.")
        if stated:
            _require_sense(team, per, lane, stated)
        changed = {_name(per, unit, lane): most for unit, most in limits.items()}
        self._change(team, changed, None).run(self._redis)

    def configure(self, budgets: Mapping[str, Sequence[Budget]]) -> None:
        """Set the configured budgets of these teams, if the configuration has changed.

        The server must know the scripts (`load_all`).
        """
        teams = iter(budgets)
        while some := list(islice(teams, READ_AT_ONCE)):
            asked, changes = (self._redis.pipeline(transaction=False) for _ in range(2))
            for team in some:
                asked.hget(self._keys.budget(team), "configured")
            for team, text in zip(some, asked.execute(raise_on_error=False), strict=True):
                if isinstance(text, Exception):
                    if refusing_state(text) is RETYPED:
                        continue  # an operator has to delete the key
                    raise text
                said, stated = json.loads(text or "{}"), _stated(budgets[team])
                names = {*said, *stated}
                if changed := {
                    name: stated.get(name) for name in names if said.get(name) != stated.get(name)
                }:
                    self._change(team, changed, stated).queue(changes)
            changes.execute()

    def sound(self, teams: Sequence[str]) -> list[str]:
        """Those of ``teams`` whose budgets can be read: nobody has changed the type of their key."""
        found = ask_each(self._redis, teams, lambda ask, team: ask.type(self._keys.budget(team)))
        return [team for team, kind in found if kind in (b"none", b"hash")]

    def of(self, teams: Sequence[str], now_ms: int) -> list[Allowance]:
        """The state of these teams' budgets, in the order of teams, lanes, periods and units."""
        pipeline = self._redis.pipeline(transaction=False)
        for team in teams:
            pipeline.hgetall(self._keys.budget(team))
        pipeline.hmget(self._keys.clock, *TIME_FIELDS)
        *found, noted = pipeline.execute()
        redis_ms = now_ms - ahead_at(now_ms, noted)
        return [
            allowance
            for team, fields in zip(teams, found, strict=True)
            for allowance in _read(
                team, {name.decode(): value.decode() for name, value in fields.items()}, redis_ms
            )
        ]

    def note_logged(self, allowances: Sequence[Allowance]) -> None:
        """Note that events of these states were logged."""
        pipeline = self._redis.pipeline(transaction=False)
        for each in allowances:
            logged = f"{each.period.name} {each.state}"
            pipeline.hset(
                self._keys.budget(each.team), f"logged {_name(each.per, each.unit, each.lane)}", logged
            )
        pipeline.execute()

    def _change(
        self, team: str, limits: Mapping[str, float | None], stated: Mapping[str, float] | None
    ) -> Call:
        texts = {name: most is not None and f"{most:.15g}" for name, most in limits.items()}
        return bound(
            "budget_set",
            named_keys(self._keys, budget=self._keys.budget(team)),
            team=team,
            limits=json.dumps(texts),
            configured="" if stated is None else json.dumps(stated),
            keep_ms=KEEP_MS,
            audit=self._auditor.entry(Act.BUDGETED, team, team, after=texts),
        )


def _stated(budgets: Sequence[Budget]) -> dict[str, float]:
    """Configured limits, under the names of `_name`."""
    return {
        _name(budget.per, unit, budget.lane): most
        for budget in budgets
        for unit, most in budget.limits.items()
    }


def _name(per: str, unit: str, lane: str) -> str:
    return f"{per} {unit} {lane}"


def _read(team: str, fields: Mapping[str, str], now_ms: int) -> list[Allowance]:
    found: list[Allowance] = []
    for field, most in fields.items():
        if not field.startswith("limit "):
            continue
        _, said_per, said_unit, lane = field.split(" ", 3)
        per, unit = cast(Per, said_per), cast(Unit, said_unit)
        period = period_of(per, now_ms)
        used = float(fields.get(f"used {per} {period.name} {unit} {lane}", 0)) / _SCALE.get(unit, 1)
        held = fields.get(f"held {per} {unit} {lane}") == period.name
        logged = fields.get(f"logged {per} {unit} {lane}", "")
        found.append(Allowance(team, lane, per, unit, float(most), used, held, period, logged))
    return sorted(found, key=lambda each: (each.lane, each.per, each.unit))


_REMEDIES = {
    "requests": "Give a whole number, 1 or more; `none` removes the limit.",
    "tokens": "Give a whole number, 1 or more; `none` removes the limit.",
    "usd": "Give dollars, more than 0; `none` removes the limit.",
}


def _require_sense(team: str, per: str, lane: str, limits: Mapping[str, float]) -> None:
    try:
        Budget.model_validate({"per": per, "lane": lane, **limits})
    except ValidationError as error:
        place, value, problem = first_flaw(error)
        field = f"teams.{team}.budgets.{place}".rstrip(".")
        given = value if place else dict(limits)
        raise ConfigurationError(field, given, problem, _REMEDIES.get(place, "")) from None


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
