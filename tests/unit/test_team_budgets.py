"""A team's budget as people see it: why a run waits, what the log says, what `fairlane budgets` shows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from redis import Redis
from redis.client import Pipeline
from structlog.testing import capture_logs

from fairlane.config.loader import load_settings
from fairlane.config.settings import Settings
from fairlane.core.clock import ManualClock
from fairlane.core.errors import ConfigurationError
from fairlane.evaluators.builders import llm_judge
from fairlane.model.tokens import Estimate
from fairlane.store.write.audit import AuditLog
from fairlane.store.write.budgets import READ_AT_ONCE, Budgets, period_of
from fairlane.store.write.runs.runs import bounds_of
from fairlane.store.write.workers import WorkerInfo
from fairlane.why.targets import Explainer
from fairlane.why.waiting import Waiting
from fairlane_scheduler.upkeep.budgets import BudgetWatch
from tests.support.command_line import CommandLine
from tests.support.deployment import Deployment
from tests.unit.test_scheduler_bounds import plan

LANE = "sim:fast"


class Asked:
    """A run of ten jobs of 60 and 40 tokens on a deployment with a hundred slots."""

    def __init__(self, redis: Redis) -> None:
        self.d = Deployment(redis)
        self.d.lane(LANE)
        info = WorkerInfo("w1", 100, (LANE,), "1", 1, "box", 0)
        self.d.workers.beat("w1", info, [], 1000, changed=True, now_ms=self.d.now_ms).run(redis)
        self.ref = self.d.submit(rows=10)
        self.d.feed(self.ref, 10, LANE, Estimate(60, 40))
        self.budgets = Budgets(redis, self.d.keys)

    def why(self, target: str = "r1") -> Waiting:
        return Explainer(self.d.redis, self.d.keys, "search", {}, self.d.now_ms).why(target)


@pytest.fixture
def asked(real_redis: Redis) -> Asked:
    return Asked(real_redis)


def watch(asked: Asked, budgets: list[dict[str, Any]]) -> BudgetWatch:
    return BudgetWatch(
        asked.budgets, Settings.model_validate({"teams": {"search": {"budgets": budgets}}}).teams
    )


def warned(asked: Asked, found: BudgetWatch) -> list[tuple[Any, ...]]:
    with capture_logs() as logs:
        found.tick(asked.d.now_ms)
    return [(line["log_level"], line["event"], line["unit"], line["used"], line["most"]) for line in logs]


def test_a_used_up_budget_is_named_with_its_end(asked: Asked) -> None:
    asked.budgets.set("search", "day", {"tokens": 400})
    for attempt in asked.d.start(asked.ref, 4):
        asked.d.finish(attempt, used=100)
    assert asked.d.take(asked.ref) == []
    found, end_ms = asked.why(), period_of("day", asked.d.now_ms).end_ms
    assert found.constraint == "team_budget"
    assert found.sentence == "team budget of 400 tokens a day is used up until 00:00 UTC"
    assert found.until_ms == end_ms
    assert found.eta.at_ms is not None
    assert found.eta.at_ms >= end_ms
    assert found.eta.at_least
    assert asked.why("r1/7").constraint == "team_budget"


def test_a_budget_that_calls_in_flight_hold_says_how_much(asked: Asked) -> None:
    asked.budgets.set("search", "month", {"tokens": 250}, lane=LANE)
    assert len(asked.d.take(asked.ref)) == 2
    assert asked.why().sentence == (
        "team budget of 250 tokens a month on sim:fast is used up until 1 December, 00:00 UTC: "
        "200 tokens are used or reserved, and the next call may exceed it"
    )


def test_a_lane_names_the_teams_that_a_budget_holds_back_there(asked: Asked) -> None:
    asked.budgets.set("search", "day", {"tokens": 400})
    for attempt in asked.d.start(asked.ref, 4):
        asked.d.finish(attempt, used=100)
    assert asked.d.take(asked.ref) == []
    shown = "team budget of 400 tokens a day is used up until 00:00 UTC"
    found, end_ms = asked.why(LANE), period_of("day", asked.d.now_ms).end_ms
    assert (found.constraint, found.sentence, found.until_ms) == (
        "team_budget",
        f"team search: {shown}",
        end_ms,
    )
    assert found.held_teams == (("search", 6, shown, end_ms),)
    other = asked.d.submit("ads", "r2", 5)
    asked.d.feed(other, 5, LANE, Estimate(60, 40))
    found = asked.why(LANE)
    assert found.constraint == "nothing", "the lane itself has jobs that start"
    assert [each.team for each in found.held_teams] == ["search"]
    asked.budgets.set("search", "day", {"tokens": None})
    assert asked.why(LANE).held_teams == ()


def test_a_call_larger_than_the_whole_budget_is_reported_so(asked: Asked) -> None:
    asked.budgets.set("search", "day", {"tokens": 50})
    assert asked.d.take(asked.ref) == []
    words = "the next call may use 100 tokens, more than the whole team budget of 50 tokens a day"
    assert asked.why().sentence == words


def test_a_budget_that_leaves_room_is_not_mentioned(asked: Asked) -> None:
    asked.budgets.set("search", "day", {"requests": 100, "usd": 1})
    assert asked.why().constraint == "nothing"


def test_eighty_percent_are_a_warning_once_a_period_and_so_is_the_end(asked: Asked) -> None:
    found = watch(asked, [{"per": "day", "requests": 5}])
    found.reload()
    asked.d.take(asked.ref, 3)
    assert warned(asked, found) == []
    asked.d.take(asked.ref, 1)
    assert warned(asked, found) == [("warning", "budget_nearly_used", "requests", 4, 5)]
    assert warned(asked, found) == []
    asked.d.take(asked.ref)
    assert warned(asked, found) == [("warning", "budget_used_up", "requests", 5, 5)]
    assert warned(asked, watch(asked, [])) == [], "nor does another leader tell it again"
    asked.d.advance(period_of("day", asked.d.now_ms).end_ms - asked.d.now_ms)
    assert warned(asked, found) == []
    asked.d.take(asked.ref)
    assert warned(asked, found) == [("warning", "budget_used_up", "requests", 5, 5)]


COUNTED = ("sscan", "smembers", "hget", "hgetall", "hset", "evalsha")


def commands(redis: Redis, act: Callable[[], object]) -> Counter[str]:
    """What of `COUNTED` the server was sent while something was done."""
    redis.config_resetstat()
    act()
    shown = redis.info("commandstats")
    return Counter({name: shown.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in COUNTED})


def a_thousand_teams(requests: int = 5) -> Settings:
    budgets = [{"per": "day", "requests": requests}]
    return Settings.model_validate({"teams": {f"t{n}": {"budgets": budgets} for n in range(1000)}})


def test_a_tick_looks_at_a_bounded_number_of_a_thousand_teams_and_at_all_in_turn(asked: Asked) -> None:
    found = BudgetWatch(asked.budgets, a_thousand_teams().teams)
    found.reload()
    ticks = 0
    while len(found.latest) < 1000:
        ticks += 1
        sent = commands(asked.d.redis, lambda: found.tick(asked.d.now_ms))
        assert sent["sscan"] == 1
        assert sent["hgetall"] <= 1.5 * READ_AT_ONCE
        assert sent.total() == sent["sscan"] + sent["hgetall"]
    assert ticks <= 15


def test_a_thousand_budgets_that_are_used_up_are_reported_once_and_cost_no_more_afterwards(
    asked: Asked,
) -> None:
    found = BudgetWatch(asked.budgets, a_thousand_teams().teams)
    found.reload()
    for n in range(1000):
        asked.d.redis.hset(asked.d.keys.budget(f"t{n}"), f"used day {today(asked)} requests *", "5")
    with capture_logs() as logs:
        for _ in range(40):
            found.tick(asked.d.now_ms)
    assert Counter(line["team"] for line in logs) == {f"t{n}": 1 for n in range(1000)}
    sent = commands(asked.d.redis, lambda: found.tick(asked.d.now_ms))
    assert (sent["hget"], sent["hset"]) == (0, 0)


def today(asked: Asked) -> str:
    return period_of("day", asked.d.now_ms).name


def test_a_term_of_a_thousand_teams_begins_within_a_few_round_trips(asked: Asked) -> None:
    settings = a_thousand_teams()
    with round_trips(asked.d.redis) as first:
        BudgetWatch(asked.budgets, settings.teams).reload()
    assert len(asked.budgets.teams()) == 1000
    with round_trips(asked.d.redis) as again:
        sent = commands(asked.d.redis, BudgetWatch(asked.budgets, settings.teams).reload)
    assert max(len(first), len(again)) <= 1 + 2 * 1000 // READ_AT_ONCE
    assert sent["evalsha"] == 0
    assert sent["hget"] == 1000


@contextmanager
def round_trips(redis: Redis) -> Iterator[list[str]]:
    """Pipelines that were sent, and commands that were sent alone, but for what counts them."""
    seen: list[str] = []
    send, execute = redis.execute_command, Pipeline.execute

    def one(*words: Any, **options: Any) -> Any:
        if words[0] not in ("INFO", "CONFIG RESETSTAT"):
            seen.append(words[0])
        return send(*words, **options)

    def many(pipeline: Pipeline, **options: Any) -> Any:
        if pipeline.command_stack:
            seen.append("pipeline")
        return execute(pipeline, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(redis, "execute_command", one)
        patch.setattr(Pipeline, "execute", many)
        yield seen


def test_a_team_without_a_budget_any_more_is_forgotten_after_a_round(asked: Asked) -> None:
    found = watch(asked, [{"per": "day", "requests": 5}])
    found.reload()
    found.tick(asked.d.now_ms)
    assert [each.team for each in found.latest] == ["search"]
    asked.budgets.set("search", "day", {"requests": None})
    found.tick(asked.d.now_ms)
    assert found.latest == []


def test_budgets_that_the_configuration_no_longer_states_are_gone(asked: Asked) -> None:
    watch(asked, [{"per": "day", "requests": 5}]).reload()
    assert asked.budgets.teams() == ["search"]
    BudgetWatch(asked.budgets, Settings().teams).reload()
    assert asked.budgets.teams() == []


@pytest.mark.parametrize(
    "budget",
    [{"per": "day"}, {"per": "week", "tokens": 1}, {"tokens": 5}, {"per": "day", "tokens": 0}],
)
def test_a_budget_in_the_configuration_says_how_much_of_what_in_which_time(budget: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"teams": {"search": {"budgets": [budget]}}})


@pytest.mark.parametrize(
    ("budget", "shown"),
    [
        ('per = "week"\ntokens = 1', "table 2: per: must be 'day' or 'month', in .*got 'week'"),
        ("tokens = 5", r"table 2: per: is missing .* Add it. \"day\" or \"month\", each in UTC"),
        ('per = "day"', "table 2: a budget needs requests, tokens or usd"),
        ('per = "day"\ntokens = 0', "table 2: tokens: must be greater than 0"),
        ('per = "day"\ntoken = 5', "table 2: token: unknown key .* did you mean 'tokens'"),
    ],
)
def test_a_wrong_budget_is_named_with_its_table_its_field_and_its_remedy(
    tmp_path: Path, budget: str, shown: str
) -> None:
    file, head = tmp_path / "fairlane.toml", "[[teams.search.budgets]]\n"
    file.write_text(f'{head}per = "day"\nrequests = 5\n{head}{budget}\n')
    with pytest.raises(ConfigurationError, match=rf"teams\.search\.budgets, {shown}"):
        load_settings(file, environ={})


def test_every_run_carries_the_prices_of_its_calls() -> None:
    judge = llm_judge("sim:judge", "{{ output }}", {"yes": 1})
    prices = {"sim:fast": {"input": 1, "output": 2}, "sim:judge": {"input": 0.5, "output": 4}}
    fields = bounds_of(plan(judge), Settings.model_validate({"prices": prices}).prices, None)
    assert (fields["price:0"], fields["price:1"]) == ("1 2", "0.5 4")


def test_the_command_sets_and_lists_budgets(real_redis: Redis) -> None:
    command = CommandLine(real_redis)
    assert "no team has a budget" in command("budgets").stderr
    assert "0 tokens used" in command("budgets", "set", "search", "--per", "day", "--tokens", "1,000").stderr
    assert command("budgets", "set", "search", "--per", "month", "--usd", "2.5").exit_code == 0
    command("budgets", "set", "ads", "--per", "day", "--requests", "5", "--lane", LANE)
    rows = [re.split(r"\s{2,}", line) for line in command.out("budgets").splitlines()]
    assert rows[0] == ["team", "lane", "per", "used", "budget", "share", "state", "until"]
    assert [row[:5] for row in rows[1:]] == [
        ["ads", "sim:fast", "day", "0 requests", "5 requests"],
        ["search", "all", "day", "0 tokens", "1,000 tokens"],
        ["search", "all", "month", "$0.00", "$2.50"],
    ]
    (first, *_) = command.json("budgets")
    assert (first["team"], first["most"], first["state"]) == ("ads", 5, "open")
    assert "no budget a day" in command("budgets", "set", "search", "--per", "day", "--tokens", "none").stderr
    assert "no lane" in command.refused("budgets", "set", "ads", "--per", "day", "--usd", "1", "--lane", "x")
    for wrong in ("many", "1,5", "10,00", ",5"):
        assert "is no number" in command.refused(
            "budgets", "set", "ads", "--per", "day", "--usd", wrong, code=2
        )


def test_a_configured_budget_of_a_lane_that_nobody_has_used_can_be_changed(real_redis: Redis) -> None:
    command, keys = CommandLine(real_redis), Deployment(real_redis).keys
    lane, change = "openai:gpt-4o", ("budgets", "set", "search", "--per", "month", "--lane", "openai:gpt-4o")
    Budgets(real_redis, keys).set("search", "month", {"usd": 200}, lane)
    command.out(*change, "--usd", "100")
    assert [(each["lane"], each["most"]) for each in command.json("budgets")] == [(lane, 100)]
    command.out(*change, "--usd", "none")
    assert command.json("budgets") == []


def test_a_change_is_in_the_audit_log_and_a_restart_of_the_scheduler_is_not(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    budgets = Budgets(real_redis, d.keys)
    budgets.set("search", "day", {"tokens": 5})
    settings = Settings.model_validate({"teams": {"ads": {"budgets": [{"per": "day", "usd": 1}]}}})
    for _ in range(2):
        BudgetWatch(budgets, settings.teams).reload()
    acts = [(each.act, each.team) for each in AuditLog(real_redis, d.keys).since()]
    assert acts == [("team_budgeted", "search"), ("team_budgeted", "ads")]


def test_the_end_of_a_month_is_found_in_any_year() -> None:
    leap = ManualClock(1_709_164_800_000)  # 29 February 2024
    assert period_of("month", leap.now_ms()) == ("2024-02", 1_709_251_200_000)


def test_a_share_in_json_is_1_only_of_a_budget_that_is_used_up(real_redis: Redis) -> None:
    command = CommandLine(real_redis)
    command.out("budgets", "set", "search", "--per", "day", "--requests", "1,000,000")
    period = command.json("budgets")[0]["period"]
    for used, share in ((999_999, 0.999999), (1, 0.000001)):
        real_redis.hset(command.stage.keys.budget("search"), f"used day {period} requests *", used)
        assert command.json("budgets")[0]["share"] == share
