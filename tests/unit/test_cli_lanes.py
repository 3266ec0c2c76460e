"""``fairlane lanes``: the state that it shows of a lane, and what an operator can change."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fairlane.cli.lanes.lane_views import Allowed, LaneReport, axis_in_words, limits_in_words
from fairlane.core.figures import short
from fairlane.model.lane import LaneLimits
from fairlane.model.tokens import Estimate
from fairlane.store.write.lanes.lane_view import AxisView, Hold, Places
from tests.support.command_line import CommandLine
from tests.support.idle_lane import IDLE

NOW = 1_700_000_000_000


def report(queued: int = 0, **changes: object) -> LaneReport:
    return LaneReport(replace(IDLE, **changes), queued)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("axis", "allowed"),
    [
        (AxisView(configured=60, learned=90, allowed=60, source="configured"), Allowed(60, "configured")),
        (AxisView(configured=60, learned=30, allowed=30, source="probed"), Allowed(30, "probed")),
        (AxisView(learned=600, allowed=600, source="starting"), Allowed(600, "probing")),
        (AxisView(configured=0, source="configured"), Allowed(None, "unlimited")),
        (AxisView(), Allowed(None, "unlimited")),
    ],
)
def test_the_rate_in_force_is_reported_with_its_source(axis: AxisView, allowed: Allowed) -> None:
    assert report(axes={**IDLE.axes, "requests": axis}).allowed == allowed


@pytest.mark.parametrize(
    ("shut", "words"),
    [
        (Hold("paused"), "paused"),
        (Hold("probing"), "circuit half-open: one probe is in flight"),
        (Hold("circuit", NOW + 12_500), "circuit open, until 22:13:32, in 12 s"),
        (Hold("blocked", NOW + 59 * 60_000), "blocked, until 23:12:20, in 59 min"),
    ],
)
def test_a_lanes_constraint_is_reported_with_its_end(utc: None, shut: Hold, words: str) -> None:
    found = report(shut=shut)
    assert (found.hold, found.hold_in_words) == (shut, words)


def test_a_parked_lane_is_reported_with_the_providers_reason() -> None:
    assert report(shut=Hold("parked"), parked="no quota").hold_in_words == "parked: no quota"


def test_a_pause_that_the_provider_asked_for_is_reported_so(utc: None) -> None:
    found = report(shut=Hold("blocked", NOW + 1000), asked_to_wait=True)
    assert found.hold_in_words == "blocked, as the provider asked, until 22:13:21, in 1 s"


@pytest.mark.parametrize(
    "changes",
    [{"reason": "requests"}, {"reason": "blocked", "queued": 5}],
)
def test_what_is_past_or_waits_for_nothing_is_no_hold(changes: dict[str, object]) -> None:
    found = report(**changes)  # type: ignore[arg-type]
    assert (found.hold, found.hold_in_words) == (None, "")


def test_a_lane_that_finds_out_whether_it_opens_is_refused() -> None:
    found = report(queued=1, reason="refused")
    assert found.hold == Hold("refused")
    assert found.hold_in_words == "429s: one call tests whether the lane opens"


@pytest.mark.parametrize("reason", ["requests", "tokens", "input", "output", "window", "slots", "gap"])
def test_queued_jobs_are_held_by_what_the_lane_was_last_reported(reason: str) -> None:
    assert report(queued=1, reason=reason).hold == Hold(reason)
    assert report(queued=1, reason=reason).hold_in_words


def test_a_day_that_is_used_up_is_reported_with_its_end(utc: None) -> None:
    axes = {**IDLE.axes, "day": AxisView(renews_ms=NOW + 3_600_000)}
    found = report(queued=1, reason="day", axes=axes)
    assert found.hold == Hold("day", NOW + 3_600_000)
    assert found.hold_in_words == "requests of the day, until 23:13:20, in 1 h"


def test_an_axis_is_reported_with_all_that_its_sources_say() -> None:
    axis = AxisView(
        configured=1000,
        allowed=590.4,
        learned=590.4,
        source="probed",
        reported=900,
        reported_ms=NOW - 3000,
        probed=598.2,
        probed_ms=NOW - 60_000,
        uncertainty=4.1,
        level=0.25,
        shape="window",
        renews_ms=NOW + 30_000,
    )
    assert axis_in_words("requests", axis, NOW) == (
        "about 590 requests/min, learned from 429s; 1,000 configured; headers report 900, 3 s ago; "
        "429s show 598 ± 4, 1 min ago; 0.25 left; a window that renews in 30 s"
    )
    assert axis_in_words("tokens", AxisView(), NOW) == "no limit of tokens/min"


def test_the_share_that_is_rejected_at_any_rate_is_reported_beside_the_rate() -> None:
    axis = AxisView(allowed=590.4, source="probed", by_chance=0.052)
    assert axis_in_words("requests", axis, NOW) == (
        "about 590 requests/min, learned from 429s; 5.2% of calls are rejected at any rate"
    )
    assert "rejected at any rate" in axis_in_words("requests", AxisView(by_chance=0.2), NOW)


def test_what_others_take_of_a_lane_is_reported() -> None:
    axes = {**IDLE.axes, "requests": AxisView(allowed=60, source="headers", foreign=31.4)}
    assert report(axes=axes).shared_in_words == "about 31.4 requests/min"
    assert report(axes=axes).document()["shared"]
    assert not report().document()["shared"]


def test_a_document_has_the_end_of_a_hold_in_iso_time() -> None:
    document = report(shut=Hold("blocked", NOW + 1000), blocked_until_ms=NOW + 1000).document()
    assert (document["constraint"], document["constraint_until"]) == ("blocked", "2023-11-14T22:13:21.000Z")


def test_limits_are_reported_in_words() -> None:
    every = LaneLimits(
        requests_per_minute=1200,
        tokens_per_minute=50_000,
        max_concurrency=20,
        min_gap_ms=100,
        burst_seconds=2,
    )
    words = "1,200 requests/min, 50,000 tokens/min, burst 2 s, at most 20 in flight, 100 ms apart"
    assert limits_in_words(every) == words
    shaped = LaneLimits(
        input_tokens_per_minute=4000,
        output_tokens_per_minute=1000,
        requests_per_day=250,
        exact=True,
        charge="reserved",
        output_factor=5,
        cache_reads="counted",
    )
    assert limits_in_words(shaped) == (
        "4,000 input tokens/min, 1,000 output tokens/min, 250 requests/day, exactly, burst 1 s, "
        "reserved tokens charged, output tokens count 5 times, cache reads counted"
    )
    assert limits_in_words(LaneLimits(requests_per_minute=0)) == "requests unlimited"
    assert limits_in_words(LaneLimits()) == "no limits"


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This machine's clock is in UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_every_lane_is_listed_with_what_it_does(cli: CommandLine) -> None:
    cli.stage.deployment.lane("sim:fast", requests_per_minute=600, max_concurrency=3)
    run = cli.submitted(rows=10)
    cli.stage.answer(run, 2)
    header, fast, judge = cli.out("lanes").splitlines()
    assert header.split() == [
        "lane",
        "requests/min",
        "in",
        "flight",
        "queued",
        "granted",
        "429s",
        "errors",
        "limited",
        "by",
    ]
    assert fast.split() == ["sim:fast", "600", "configured", "0/3", "8", "2", "0", "0"]
    assert judge.split() == ["sim:judge", "unlimited", "0", "0", "0", "0", "0"]


def test_the_table_has_the_share_of_calls_that_failed(cli: CommandLine) -> None:
    cli.stage.redis.hset(cli.stage.keys.lane("sim:fast"), mapping={"seen_ok": 3, "seen_broken": 1})
    assert cli.out("lanes").splitlines()[1].split()[-1] == "25.0%"


def test_why_a_lane_is_parked_is_reported_below_the_table(cli: CommandLine) -> None:
    cli.stage.redis.hset(cli.stage.keys.lane("sim:fast"), "parked", "no quota is left.")
    result = cli("lanes")
    assert result.stdout.splitlines()[1].split()[-1] == "parked"
    assert "sim:fast is parked: no quota is left; `fairlane lanes resume sim:fast`" in result.stderr


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0"), (999_999, "999,999"), (1_234_567, "1.23M"), (45_600_000_000, "45.6G")]
)
def test_a_count_of_any_size_is_short(count: int, shown: str) -> None:
    assert short(count) == shown


def test_lanes_as_json_are_one_list(cli: CommandLine) -> None:
    assert [lane["lane"] for lane in cli.json("lanes")] == ["sim:fast", "sim:judge"]
    assert cli.json("lanes", "show", "sim:fast")["source"] == "unlimited"


def test_one_lane_is_reported_in_full(cli: CommandLine) -> None:
    cli.stage.deployment.lane("sim:fast", requests_per_minute=600)
    announced = cli.out("lanes", "show", "sim:fast")
    assert "600 requests/min, configured" in announced
    assert announced.splitlines()[-1].split() == ["limited", "by", "nothing"]


def test_without_lanes_it_says_where_they_come_from(cli: CommandLine) -> None:
    cli.stage.redis.delete(cli.stage.keys.lanes)
    assert "there are no lanes yet" in cli("lanes").stderr


def test_limits_are_set_and_taken_away(cli: CommandLine) -> None:
    cli.out("lanes", "set", "sim:fast", "--requests-per-minute", "60", "--max-concurrency", "5")
    cli.out("lanes", "set", "sim:fast", "--burst-seconds", "2.5", "--max-concurrency", "none")
    limits = cli.stage.deployment.lanes.view("sim:fast").limits
    assert limits == LaneLimits(requests_per_minute=60, burst_seconds=2.5)


def test_how_a_provider_charges_is_set_and_taken_away(cli: CommandLine) -> None:
    limits = {"input_tokens_per_minute": 4000, "output_tokens_per_minute": 900.5, "requests_per_day": 250}
    charges = {"exact": True, "charge": "reserved", "output_factor": 5, "cache_reads": "counted"}
    given = [(f"--{name.replace('_', '-')}", str(value)) for name, value in (limits | charges).items()]
    cli.out("lanes", "set", "sim:fast", *(word for option in given for word in option))
    view = cli.stage.deployment.lanes.view("sim:fast")
    assert view.limits == LaneLimits.model_validate({"requests_per_minute": 0} | limits | charges)
    cli.out("lanes", "set", "sim:fast", "--exact", "none", "--charge", "used", "--output-factor", "none")
    kept = {"requests_per_minute": 0, "charge": "used", "cache_reads": "counted"}
    assert cli.stage.deployment.lanes.view("sim:fast").limits == LaneLimits.model_validate(limits | kept)


def test_lanes_show_prints_every_limited_axis(cli: CommandLine) -> None:
    d = cli.stage.deployment
    ref = d.queued_lane(jobs=5, tokens=Estimate(30, 10), input_tokens_per_minute=6000, requests_per_day=9)
    d.take(ref, 2)
    now_ms = str(d.redis.time()[0] * 1000)
    seen = {"input_reported": "5000", "input_foreign": "500", "input_foreign_ms": now_ms}
    d.redis.hset(d.keys.lane("sim:fast"), mapping=seen)
    announced = cli.out("lanes", "show", "sim:fast")
    assert (
        "about 4,485 input tokens/min, from its headers; 6,000 configured; headers report 5,000" in announced
    )
    assert "with others, who take about 500 input tokens/min" in announced
    assert "9 requests/day, configured; 9 left" in announced
    axes = cli.json("lanes", "show", "sim:fast")["axes"]
    assert (axes["day"]["allowed"], axes["day"]["level"], axes["day"]["source"]) == (9, 9, "configured")
    assert (axes["input"]["reported"], axes["input"]["foreign"], axes["input"]["source"]) == (
        5000,
        500,
        "headers",
    )
    assert axes["output"]["allowed"] is None


def test_the_concurrency_limit_of_a_lane_is_reported_with_its_source(cli: CommandLine) -> None:
    d = cli.stage.deployment
    assert d.lanes.view("sim:fast").places == Places()
    for fields, places in (
        ({"concurrency_reported": "8"}, Places(8, "headers")),
        ({"window": "7.5"}, Places(7, "refusals")),
        ({"search_window": "6", "search_by": "latency"}, Places(6, "latency")),
    ):
        d.redis.hset(d.keys.lane("sim:fast"), mapping=fields)
        assert d.lanes.view("sim:fast").places == places
    d.lanes.limit("sim:fast", {"max_concurrency": 5})
    assert d.lanes.view("sim:fast").places == Places(5, "configured")
    assert "0 of at most 5, configured" in cli.out("lanes", "show", "sim:fast")


def test_setting_limits_prints_the_limits_in_force(cli: CommandLine) -> None:
    announced = cli("lanes", "set", "sim:fast", "--requests-per-minute", "60").stderr
    assert announced == "sim:fast: 60 requests/min, burst 1 s\n"


def test_setting_a_limit_mentions_that_the_settings_have_it_too(cli: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "fairlane.toml"
    connection = '[connections.sim]\nprotocol = "openai"\nbase_url = "http://x/v1"\n'
    config.write_text(f'{connection}[lanes."sim:fast"]\nrequests_per_minute = 1\n')
    options = ("--config", str(config), "--requests-per-minute", "60", "--min-gap-ms", "5")
    assert (
        "until somebody changes requests_per_minute in the settings"
        in cli("lanes", "set", "sim:fast", *options).stderr
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ([], "say which limit to set"),
        (["--requests-per-minute", "many"], "--requests-per-minute: is no number"),
        (["--requests-per-minute", "1,5"], "--requests-per-minute: is no number"),
        (["--requests-per-minute", "-1"], "requests_per_minute"),
        (["--requests-per-minute", "nan"], "requests_per_minute"),
        (["--max-concurrency", "2.5"], "max_concurrency"),
        (["--burst-seconds", "0"], "burst_seconds"),
        (["--charge", "sometimes"], "charge"),
        (["--exact", "maybe"], "exact"),
        (["--requests-per-day", "0.5"], "requests_per_day"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(cli: CommandLine, options: list[str], complaint: str) -> None:
    assert complaint in cli.refused("lanes", "set", "sim:fast", *options, code=2)
    assert cli.stage.deployment.lanes.view("sim:fast").limits == LaneLimits(requests_per_minute=0)


@pytest.mark.parametrize("command", [["show"], ["pause"], ["resume"], ["set", "--min-gap-ms", "5"]])
def test_an_unknown_lane_is_reported_with_those_that_there_are(cli: CommandLine, command: list[str]) -> None:
    announced = cli.refused("lanes", *command, "sim:fats")
    assert "no lane 'sim:fats'; known lanes: sim:fast, sim:judge" in announced
    assert cli.stage.deployment.lanes.names() == ["sim:fast", "sim:judge"]


def test_a_new_lane_is_made_known_on_request(cli: CommandLine) -> None:
    cli.stage.redis.set(cli.stage.keys.catalog, '{"connections": {"sim": {}}}')
    cli.out("lanes", "set", "sim:new", "--new", "--requests-per-minute", "60")
    assert "sim:new" in cli.stage.deployment.lanes.names()
    announced = cli.refused("lanes", "set", "smi:new", "--new", "--min-gap-ms", "5", code=2)
    assert "belongs to no connection" in announced


def test_a_held_lane_is_reported_and_is_active_after_a_resume(cli: CommandLine) -> None:
    d = cli.stage.deployment
    held = {"circuit": "open", "open_ms": "4102444800000", "held_until_ms": "253402214400000"}
    d.queued_lane(jobs=5, requests_per_minute=60)
    d.redis.hset(d.keys.lane("sim:fast"), mapping=held)
    found = cli.json("lanes", "show", "sim:fast")
    assert (found["state"], found["constraint"]) == ("blocked", "held")
    assert found["held_until"].startswith("9999-12-31")
    assert "`fairlane lanes resume sim:fast` lifts the hold" in cli("lanes").stderr
    assert "`fairlane lanes resume sim:fast` lifts the hold" in cli.out("why", "sim:fast")
    assert "sim:fast is active" in cli("lanes", "resume", "sim:fast").stderr
    found = cli.json("lanes", "show", "sim:fast")
    assert (found["state"], found["constraint"], found["held_until"]) == ("active", None, None)


def test_a_resume_prints_what_still_limits_the_lane(cli: CommandLine) -> None:
    d = cli.stage.deployment
    d.queued_lane(jobs=2)
    d.redis.hset(d.keys.lane("sim:fast"), mapping={"blocked_ms": "4102444800000"})
    cli.out("lanes", "pause", "sim:fast")
    assert "sim:fast is blocked: blocked, until 2100-01-01" in cli("lanes", "resume", "sim:fast").stderr


def test_a_paused_lane_grants_nothing_until_it_is_resumed(cli: CommandLine) -> None:
    run = cli.stage.deployment.queued_lane(jobs=2)
    cli.out("lanes", "pause", "sim:fast")
    assert cli.stage.deployment.ask(run).reason == "paused"
    assert cli.json("lanes")[0]["constraint"] == "paused"
    cli.out("lanes", "resume", "sim:fast")
    assert len(cli.stage.deployment.take(run)) == 2


def test_shared_options_count_before_a_subcommand_and_after_it(cli: CommandLine) -> None:
    gone = ("--redis", "redis://127.0.0.1:1/0")
    for arguments in ((*gone, "lanes"), ("lanes", *gone), ("lanes", *gone, "pause", "sim:fast")):
        assert "cannot reach Redis" in cli.refused(*arguments)
    assert "cannot reach Redis" in cli.refused("lanes", "pause", "sim:fast", *gone)


def shared(cli: CommandLine) -> None:
    """The lanes of the connection ``other`` are those of ``sim``."""
    known = {name: {"scope": "model", "lanes": "sim"} for name in ("sim", "other")}
    cli.stage.redis.set(cli.stage.keys.catalog, json.dumps({"connections": known}))


def test_a_lane_that_another_carries_stands_for_that_one(cli: CommandLine) -> None:
    shared(cli)
    announced = cli.refused("lanes", "pause", "other:fats")
    assert "calls of other:fats use sim:fats" in announced
    assert cli.json("lanes", "show", "other:fast")["lane"] == "sim:fast"
    cli.out("lanes", "pause", "other:fast")
    assert cli.stage.deployment.lanes.view("sim:fast").paused
    cli.out("lanes", "resume", "other:fast")
    cli.out("lanes", "set", "other:fast", "--min-gap-ms", "7")
    assert cli.stage.deployment.lanes.view("sim:fast").limits.min_gap_ms == 7
    assert "other:fast" not in cli.stage.deployment.lanes.names()


def test_a_lane_on_which_something_is_left_is_still_there(cli: CommandLine) -> None:
    shared(cli)
    cli.stage.deployment.queued_lane(lane="other:fast", jobs=2)
    cli.out("lanes", "pause", "other:fast")
    assert cli.stage.deployment.lanes.view("other:fast").paused
    assert not cli.stage.deployment.lanes.view("sim:fast").paused
    assert cli.json("why", "other:fast")["target"] == "other:fast"


def test_why_names_the_lane_that_carries_the_calls(cli: CommandLine) -> None:
    shared(cli)
    cli.stage.deployment.lane("other:slow")
    cli.stage.deployment.lane("sim:slow")
    assert cli.json("why", "other:fast")["target"] == "sim:fast"
    assert cli.json("why", "other:slow")["target"] == "sim:slow"


def test_a_budget_on_a_lane_that_another_carries_is_on_that_one(cli: CommandLine) -> None:
    shared(cli)
    cli.out("budgets", "set", "search", "--per", "day", "--requests", "5", "--lane", "other:fast")
    assert [each["lane"] for each in cli.json("budgets")] == ["sim:fast"]


OTHER_VALUES = {"charge": "reserved", "cache_reads": "counted", "exact": True, "refusal_budget": 0.01}
"""A value other than the default of each limit for which 7 is none."""


@pytest.mark.parametrize("name", LaneLimits.model_fields)
def test_every_limit_can_be_set_and_is_shown(cli: CommandLine, name: str) -> None:
    value = OTHER_VALUES.get(name, 7)
    cli.stage.deployment.lanes.limit("sim:fast", {"requests_per_minute": 60, "models_at_once": 2})
    before = cli.stage.deployment.lanes.view("sim:fast").limits
    cli("lanes", "set", "sim:fast", f"--{name.replace('_', '-')}", str(value).lower())
    after = cli.stage.deployment.lanes.view("sim:fast").limits
    assert getattr(after, name) == value
    assert limits_in_words(after) != limits_in_words(before)
