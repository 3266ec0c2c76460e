"""What the pages show of lanes, runs, items and teams, read from a deployment in virtual time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from fairlane.client.deployment import Deployment
from fairlane.client.views.tally import summarise
from fairlane.config.settings import Settings
from fairlane.core.errors import LaneNotFound, RunNotFound, TargetNotFound
from fairlane.flower.readings import team_board
from fairlane.flower.readings.error_words import error_shown
from fairlane.flower.readings.lane_board import chart
from fairlane.flower.readings.readers import Readers
from fairlane.flower.readings.tallies import Tallies
from fairlane.flower.readings.team_board import Use
from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import RunRef, RunState
from fairlane.store.read.reading import RecordReader
from fairlane.store.write.lanes.lane_history import FINE, Sample
from tests.support.scheduling import Cluster

FAST, JUDGE = "sim:fast", "sim:judge"
SETTINGS: dict[str, Any] = {
    "redis": {"deployment": "test"},
    "teams": {"search": {"weight": 3}, "ads": {"weight": 1}},
    "prices": {"sim:*": {"input": 1, "output": 2}},
}


def readers_on(cluster: Cluster, *, show_text: bool = False) -> Readers:
    settings = Settings.model_validate(SETTINGS)
    return Readers(Deployment(settings, cluster.redis, script_time=cluster.clock.now_ms), show_text=show_text)


def test_a_lane_reports_its_rate_its_waiting_and_what_holds_it(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={FAST: {"requests_per_minute": 60}})
    cluster.run_for(6)
    for team, rows in (("search", 40), ("ads", 20)):
        cluster.submit(rows, team=team)
    cluster.run_for(20)

    lanes = {lane["lane"]: lane for lane in readers_on(cluster).lanes.all()["lanes"]}

    lane = lanes[FAST]
    assert (lane["allowed_per_minute"], lane["source"]) == (60.0, "configured")
    assert lane["constraint"] == "requests"
    assert "60 requests/min" in lane["constraint_sentence"]
    assert set(lane["waiting"]) == {"search", "ads"}
    assert (lane["circuit"], lane["state"], lane["rejected_share"]) == ("closed", "active", 0.0)
    assert lanes[JUDGE]["waiting"] == {}


def test_a_paused_lane_is_said_to_be(real_redis: Redis) -> None:
    cluster = Cluster(real_redis)
    cluster.run_for(2)
    cluster.lanes.pause(FAST)

    lane = readers_on(cluster).lanes.one(FAST, "fine")

    assert (lane["state"], lane["constraint"]) == ("paused", "paused")
    with pytest.raises(LaneNotFound):
        readers_on(cluster).lanes.one("sim:nothing", "fine")


def sample(at_s: float, admitted: int = 0, refused: int = 0) -> Sample:
    return Sample(round(at_s * 1000), 600.0, "configured", admitted, admitted, refused, 1, None, 7)


def test_a_charts_rates_are_a_minutes_over_the_time_between_samples() -> None:
    found = chart([sample(0), sample(5, 10, 1), sample(20, 30)], 25_000, FINE)

    assert found["at"] == [0, 5, 20]
    assert found["admitted"] == [None, 120.0, 120.0]
    assert found["refused"] == [None, 12.0, 0.0]
    assert found["limit"] == [600.0] * 3


def test_a_chart_of_a_lane_that_fell_silent_goes_on_to_now() -> None:
    found = chart([sample(0), sample(5, 10)], 60_000, FINE)

    assert (found["at"][-1], found["admitted"][-1], found["waiting"][-1]) == (60.0, 0, 7)
    assert chart([], 60_000, FINE)["at"] == []


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_sums_taken_bit_by_bit_are_those_of_the_whole(real_redis: Redis, step: int) -> None:
    cluster = Cluster(real_redis)
    ref = cluster.submit(23, judges=[JUDGE])
    cluster.run_until_finished(ref)
    here = Deployment(Settings.model_validate(SETTINGS), real_redis)
    spec, tallies = cluster.specs[ref], Tallies(here)

    sums = tallies.advance(ref, spec, RunState.COMPLETED, step)
    while sums.added:
        sums = tallies.advance(ref, spec, RunState.COMPLETED, step)

    records = RecordReader(real_redis, cluster.keys, spec).records(range(23))
    assert sums.summary == summarise(spec, RunState.COMPLETED, records, here.settings.prices)
    assert sums.items == 23


def test_an_unfinished_run_shows_its_progress_what_it_waits_for_and_when_it_ends(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={FAST: {"requests_per_minute": 60}})
    ref = cluster.submit(60, judges=[JUDGE])
    cluster.run_for(20)

    page = readers_on(cluster).run.of(ref.team, ref.run)

    assert 0 < page["progress"] < 1
    assert page["state"] == "running"
    assert "sim:fast is used to the full" in page["why"]
    assert {lane["lane"] for lane in page["lanes"]} == {FAST, JUDGE}
    assert page["summed"] == page["items_done"] > 0
    assert page["consists_of"]["models"] == [FAST]


def test_the_list_has_the_newest_runs_of_all_teams_first(real_redis: Redis) -> None:
    cluster = Cluster(real_redis)
    refs = []
    for team in ("search", "ads", "search"):
        cluster.run_for(1)
        refs.append(cluster.submit(3, team=team))
    cluster.run_until_finished(*refs)

    readers = readers_on(cluster)
    rows = readers.runs.all()["runs"]

    assert [(row["team"], row["run"]) for row in rows] == [(ref.team, ref.run) for ref in reversed(refs)]
    assert {(row["state"], row["progress"], row["over"]) for row in rows} == {("completed", 1.0, True)}
    assert readers.runs.all()["runs"] == rows


def test_runs_beyond_a_page_are_on_the_next(real_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.flower.readings.run_list.LISTED", 2)
    cluster = Cluster(real_redis)
    refs = []
    for team in ("search", "ads", "search", "ads", "ads"):
        cluster.run_for(1)
        refs.append(cluster.submit(1, team=team).run)
    cluster.run_for(1)
    runs = readers_on(cluster).runs

    found = [runs.all(page) for page in (1, 2, 3, 4)]

    assert [[row["run"] for row in each["runs"]] for each in found] == [
        refs[:2:-1],
        refs[2:0:-1],
        refs[:1],
        [],
    ]
    assert {(each["page"], each["pages"]) for each in found} == {(page, 3) for page in (1, 2, 3, 4)}


def test_a_lane_shows_how_many_of_its_calls_failed_and_the_last_error(real_redis: Redis) -> None:
    cluster = Cluster(real_redis)
    cluster.run_for(2)
    cluster.submit(1)
    cluster.run_for(2)
    failed = {"last_error": "The model `fast` does not know 'my secret'.", "last_error_ms": 1000}
    counts = {"seen_ok": 2, "seen_limited": 4, "seen_broken": 2}
    real_redis.hset(cluster.keys.lane(FAST), mapping={**failed, **counts})

    closed, opened = (readers_on(cluster, show_text=show).lanes.one(FAST, "fine") for show in (False, True))

    assert (closed["failed_share"], closed["failed"]) == (0.25, 2)
    assert closed["last_error"] == "The model `fast` does not know …."
    assert (opened["last_error"], opened["last_error_ms"]) == (failed["last_error"], 1000)


def test_an_item_has_its_steps_and_no_text_unless_that_is_switched_on(real_redis: Redis) -> None:
    cluster, output = Cluster(real_redis), "A secret that the model wrote."
    ref = cluster.submit([{"q": f"{output} It is a row's."}] * 3, judges=[JUDGE])
    cluster.run_until_finished(ref)
    task = TaskResult(JobState.SUCCEEDED, output, attempts=1, score_errors={"x": f"no JSON: '{output}'"})
    judge = JudgeResult(JobState.FAILED, answer=output, error=f"the judge answered {output!r}", attempts=2)
    real_redis.hset(cluster.keys.results(ref), mapping={"2": task.to_json(), "3": judge.to_json()})

    closed = readers_on(cluster).item.of(ref.team, ref.run, 1)
    opened = readers_on(cluster, show_text=True).item.of(ref.team, ref.run, 1)

    assert [(step["step"], step["state"]) for step in closed["steps"]] == [(0, "succeeded"), (1, "failed")]
    assert closed["steps"][0]["characters"] == len(output)
    assert closed["steps"][1]["lane"] == JUDGE
    assert [step["text"] for step in closed["steps"]] == [None, None]
    assert closed["row"] is None
    assert opened["steps"][0]["text"] == output
    assert output in opened["row"]["q"]
    reported = json.dumps(
        [closed, readers_on(cluster).run.of(ref.team, ref.run), readers_on(cluster).runs.all()]
    )
    assert output not in reported
    assert '"failures": [{' in reported


def test_an_item_that_waits_says_why(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={FAST: {"requests_per_minute": 60}})
    ref = cluster.submit(60)
    cluster.run_for(5)

    item = readers_on(cluster).item.of(ref.team, ref.run, 59)

    assert item["state"] == "open"
    assert item["steps"][0]["why"]
    with pytest.raises(TargetNotFound):
        readers_on(cluster).item.of(ref.team, ref.run, 60)
    with pytest.raises(RunNotFound):
        readers_on(cluster).item.of("nobody", "r9", 0)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("429: slow down", "429: slow down"),
        ("the judge answered 'my secret', none of yes, no", "the judge answered …"),
        (
            'a score is a number, the function returned "my secret',
            "a score is a number, the function returned …",
        ),
        ("messages.0: 'my secret' is too long", "messages.0: … is too long"),
        ("it doesn't fit", "it doesn't fit"),
        ("x" * 400, "x" * 300 + "…"),
    ],
)
def test_an_error_is_shown_without_what_it_quotes(error: str, shown: str) -> None:
    assert error_shown(error, show_text=False) == shown
    assert error_shown(error, show_text=True) == error[:300] + ("…" if len(error) > 300 else "")


def test_teams_have_their_share_their_use_and_what_waits(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={FAST: {"requests_per_minute": 600}}, teams=SETTINGS["teams"])
    for team in ("search", "ads"):
        cluster.submit(600, team=team)
    cluster.run_for(2)
    readers = readers_on(cluster)
    readers.teams.all()
    cluster.run_for(20)

    teams = {team["team"]: team for team in readers.teams.all()["teams"]}

    lane = {name: team["lanes"][0] for name, team in teams.items()}
    assert {name: found["share"] for name, found in lane.items()} == {"search": 0.75, "ads": 0.25}
    assert lane["search"]["use"] == pytest.approx(0.75, abs=0.05)
    assert lane["ads"]["ended"] > 0
    assert all(team["active_runs"] == 1 and team["waiting"] > 0 for team in teams.values())


def test_use_is_of_the_last_minute_and_of_runs_that_began_meanwhile_too() -> None:
    use, old, new = Use(), RunRef("search", "a"), RunRef("ads", "b")
    use.look({old: {FAST: 100}}, 0)
    use.look({old: {FAST: 130}, new: {FAST: 10}}, 5_000)
    assert use.of() == {(FAST, "search"): 30, (FAST, "ads"): 10}

    use.look({new: {FAST: 15}}, 65_000)
    assert use.of() == {(FAST, "ads"): 5}
    assert use.watched == {new}


def test_calls_of_an_hour_without_a_look_are_not_of_the_last_minute() -> None:
    use, run = Use(), RunRef("search", "a")
    use.look({run: {FAST: 100}}, 0)
    use.look({run: {FAST: 9_000}}, 3_600_000)
    assert not use.of()[FAST, "search"]

    use.look({run: {FAST: 9_002}}, 3_605_000)
    assert use.of() == {(FAST, "search"): 2}


def test_a_run_that_is_watched_later_than_it_began_counts_from_then_on(
    real_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team_board, "WATCHED", 0)
    cluster = Cluster(real_redis, lanes={FAST: {"requests_per_minute": 6000}})
    cluster.submit(600)
    cluster.run_for(2)
    readers = readers_on(cluster)
    readers.teams.all()
    monkeypatch.setattr(team_board, "WATCHED", 1)
    assert not readers.teams._use.of()
    readers.teams.all()
    assert not readers.teams._use.of()[FAST, "search"], "its calls of the last minute are not known"
    cluster.run_for(1)
    readers.teams.all()
    assert readers.teams._use.of()[FAST, "search"] > 0
