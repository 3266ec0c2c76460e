"""What teams are promised of a lane that they share, while its limit stays, changes, or is found out."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.tokens import Usage
from tests.support.shares import (
    CHANGES_S,
    COURSES,
    ENDS_S,
    PER_MINUTE,
    Course,
    SharedLane,
    furthest_off,
    jain,
    least_jain,
    share_of,
)
from tests.support.stand_ins import CALL_S

TEN_S = 10_000
JAIN = 0.99
FOUND_S = 6  # after its limit has changed, a lane without a configured limit has found it
STEADY, HALVED, DOUBLED, LEARNED, _ = COURSES
# Until its limit changes, a lane whose limit is halved or doubled is a steady one.
ALL = pytest.mark.parametrize("course", COURSES[1:], ids=str)

FLOODS = {"one run": (1, 100_000), "many runs": (200, 500)}


@ALL
def test_equal_teams_however_unlike_are_served_evenly_in_any_ten_seconds(
    real_redis: Redis, course: Course
) -> None:
    lane = SharedLane(real_redis, course)
    lane.length_of = {"quick": 0.1, "long": 2.0}
    lane.usage_of = {"quick": Usage(10, 0), "long": Usage(10, 380)}  # at the same pace: 5 ms a token
    lane.submit(1000, "one-run")
    for _ in range(20):
        lane.submit(50, "many-runs")
    lane.submit(1000, "quick", priority=100)
    lane.submit(1000, "long", priority=-100)

    lane.run_to(ENDS_S)

    teams = ["one-run", "many-runs", "quick", "long"]
    assert least_jain(lane.calls, teams, TEN_S, lane.began_ms, lane.at(ENDS_S)) >= JAIN


@ALL
def test_weights_are_kept_within_two_percent_and_in_any_stretch_within_a_few_permits(
    real_redis: Redis, course: Course
) -> None:
    weights = {"small": 1, "middle": 2, "large": 5}
    lane = SharedLane(real_redis, course, weights)
    for team in weights:
        lane.submit(1500, team)

    lane.run_to(ENDS_S)

    order = lane.order(lane.began_ms, lane.at(ENDS_S))
    for team in weights:
        assert order.count(team) == pytest.approx(len(order) * share_of(team, weights), rel=0.02)
    assert furthest_off(order, weights) <= 6


@pytest.mark.parametrize("course", [HALVED, DOUBLED], ids=str)
def test_a_lone_team_gets_the_whole_lane_at_any_weight(real_redis: Redis, course: Course) -> None:
    lane = SharedLane(real_redis, course, {"lone": 0.01, "large": 1000})
    lane.submit(10, "large")
    lane.submit(1500, "lone")

    lane.run_to(ENDS_S)

    assert len(lane.calls) >= 0.99 * course.allowed(ENDS_S)


@pytest.mark.parametrize("course", [course for course in COURSES if course.learned], ids=str)
def test_a_lone_team_has_as_much_of_a_lane_that_finds_its_limit_as_many_would(
    real_redis: Redis, course: Course
) -> None:
    made = dict[str, int]()
    for teams in (["lone"], ["one", "another", "third"]):
        real_redis.flushall()
        lane = SharedLane(real_redis, course)
        for team in teams:
            lane.submit(1500, team)
        lane.run_to(ENDS_S)
        made[teams[0]] = len(lane.calls)

    assert made["lone"] >= 0.99 * made["one"]


@ALL
def test_a_team_that_comes_back_has_its_share_within_a_second_and_no_credit(
    real_redis: Redis, course: Course
) -> None:
    weights, jobs = {"back": 2, "busy": 1}, 20
    # Not in the moment of a grant: what that grants was earned before.
    returns = (0.0, 6.01, CHANGES_S - 0.99, 19.01, 25.01)
    lane = SharedLane(real_redis, course, weights)
    lane.submit(1500, "busy")
    came_ms: list[int] = []
    for seconds in returns:
        lane.run_to(seconds)
        came_ms.append(lane.cluster.now_ms)
        lane.submit(jobs, "back")
    lane.run_to(ENDS_S)

    for since_ms in came_ms:
        until_ms = lane.of("back", since_ms)[:jobs][-1].at_ms + 1
        first_second = lane.order(since_ms, min(until_ms, since_ms + 1000))
        assert first_second.count("back") >= share_of("back", weights) * len(first_second) - 2
        served = lane.order(since_ms, until_ms)
        assert served.count("back") >= jobs
        assert furthest_off(served, weights) <= 3


def test_a_team_that_comes_back_has_no_credit_where_places_come_free_many_at_once(real_redis: Redis) -> None:
    lane, places = SharedLane(real_redis, STEADY, requests_per_minute=0, max_concurrency=40), 40
    lane.submit(5, "back")
    lane.submit(1000, "busy")
    lane.run_to(4.2)  # calls of one length begin and end together: 40 permits are granted in one moment
    since_ms = lane.cluster.now_ms
    lane.submit(200, "back")
    lane.run_to(6)

    served = lane.order(since_ms, lane.at(6))
    assert len(served) >= 2 * places
    for wave in (served[:places], served[places : 2 * places]):
        assert wave.count("back") == pytest.approx(places / 2, abs=2)


@pytest.mark.parametrize("course", [HALVED, LEARNED], ids=str)
def test_a_team_that_leaves_and_returns_gets_no_more_than_one_that_stays(
    real_redis: Redis, course: Course
) -> None:
    lane = SharedLane(real_redis, course)
    lane.submit(1500, "stays")
    for tenth in range(0, 10 * ENDS_S, 5):
        lane.run_to(tenth / 10)
        lane.submit(20 if tenth % 40 == 0 else 2, "comes-and-goes")

    lane.run_to(ENDS_S)

    order = lane.order(lane.began_ms, lane.at(ENDS_S))
    assert order.count("comes-and-goes") <= order.count("stays") + 2


def waits(redis: Redis, course: Course, weights: dict[str, float], runs: int, rows: int) -> list[int]:
    """When each job of a team starts, in milliseconds after it was submitted, while another has so many."""
    redis.flushall()
    lane = SharedLane(redis, course, weights)
    lane.submit(10, "victim")
    lane.run_to(CHANGES_S - 3)
    for _ in range(runs):
        lane.submit(rows, "flood")
    lane.run_to(CHANGES_S - 2.992)
    lane.submit(60, "victim")
    since_ms = lane.cluster.now_ms
    lane.run_to(CHANGES_S + 10)
    return [call.at_ms - since_ms for call in lane.of("victim", since_ms)]


@pytest.mark.parametrize(
    ("course", "flood"),
    [(HALVED, "one run"), (DOUBLED, "one run"), (LEARNED, "one run"), (STEADY, "many runs")],
    ids=str,
)
def test_a_flood_makes_nobody_wait_longer_than_a_few_jobs_of_that_team_do(
    real_redis: Redis, course: Course, flood: str
) -> None:
    weights = {"victim": 2.0, "flood": 1.0}

    few = waits(real_redis, course, weights, 1, 300)
    many = waits(real_redis, course, weights, *FLOODS[flood])

    assert len(few) == len(many) == 60
    # One permit more at most, where the rounding of turns falls otherwise.
    permit_ms = 60_000 / PER_MINUTE / min(1.0, course.factor)
    assert max(long - short for long, short in zip(many, few, strict=True)) <= permit_ms


@pytest.mark.parametrize("weight", [1, 5])
def test_beside_a_flood_a_team_waits_in_inverse_proportion_to_its_weight(
    real_redis: Redis, weight: float
) -> None:
    waited = waits(real_redis, STEADY, {"victim": weight}, 1, 100_000)

    permit_ms, share = 60_000 / PER_MINUTE, weight / (weight + 1)
    for number, waited_ms in enumerate(waited, start=1):
        assert waited_ms <= (number / share + 1) * permit_ms


@pytest.mark.parametrize("course", [HALVED, DOUBLED, LEARNED], ids=str)
def test_teams_of_many_tokens_and_of_many_requests_have_the_same_dominant_share(
    real_redis: Redis, course: Course
) -> None:
    tokens_per_minute = 200 * PER_MINUTE
    lane = SharedLane(real_redis, course, tokens_per_minute=tokens_per_minute)
    lane.usage_of = {"tokens": Usage(200, 200), "requests": Usage(10, 10)}
    lane.submit(3000, "requests", prompt="x" * 40, params={"max_tokens": 10})
    lane.submit(1000, "tokens", prompt="x" * 800, params={"max_tokens": 200})

    # Not while the lane begins with its burst or its guess, nor before it has found its new limit.
    for begin, end in ((3, CHANGES_S), (CHANGES_S + FOUND_S, ENDS_S + 3)):
        lane.run_to(end)
        order = lane.order(lane.at(begin), lane.at(end))
        requests = order.count("requests") / PER_MINUTE
        tokens = order.count("tokens") * 400 / tokens_per_minute
        assert tokens == pytest.approx(requests, rel=0.06)
        # Each needs little of what the other needs most: together they have more than one lane's worth.
        assert tokens + requests >= 1.25 * course.allowed_between(begin, end) / PER_MINUTE


def test_equal_teams_are_served_evenly_if_both_rate_and_window_limit_them(real_redis: Redis) -> None:
    """Now the one stops the lane and now the other: what a permit costs may not depend on which."""
    lane = SharedLane(real_redis, DOUBLED, max_concurrency=PER_MINUTE / 60 * CALL_S + 1)
    teams = ["first", "second", "third"]
    for team in teams:
        lane.submit(1000, team)

    lane.run_to(ENDS_S)

    assert least_jain(lane.calls, teams, TEN_S, lane.began_ms, lane.at(ENDS_S)) >= JAIN


def test_teams_of_long_and_of_short_calls_have_the_same_part_of_the_window(real_redis: Redis) -> None:
    lane = SharedLane(real_redis, HALVED, requests_per_minute=0, max_concurrency=16)
    lane.length_of = {"long": 1.0, "short": 0.25}
    for team in lane.length_of:
        lane.submit(1500, team)

    for begin, end in ((5, CHANGES_S), (CHANGES_S + 2, ENDS_S)):
        lane.run_to(end)
        order = lane.order(lane.at(begin), lane.at(end))
        held = [order.count(team) * seconds for team, seconds in lane.length_of.items()]
        assert jain(held) >= JAIN


@pytest.mark.parametrize("course", [HALVED, DOUBLED, LEARNED], ids=str)
def test_an_interactive_run_starts_within_one_service_time_on_a_saturated_lane(
    real_redis: Redis, course: Course
) -> None:
    lane = SharedLane(real_redis, course)
    for number in range(5):
        lane.submit(400, f"batch{number}")
    asked: dict[str, int] = {}
    for seconds in (3, CHANGES_S - 0.1, CHANGES_S + 0.1, 20, 25):
        lane.run_to(seconds)
        visitor = f"visitor{len(asked)}"  # a team of its own: none has used up what it may be ahead
        asked[visitor] = lane.cluster.now_ms
        lane.submit(3, visitor, interactive=True)
    lane.run_to(ENDS_S)

    for visitor, since_ms in asked.items():
        first_ms = lane.of(visitor, since_ms)[0].at_ms
        assert first_ms - since_ms <= CALL_S * 1000
        # One permit at most may have been given away before the run was known.
        batch = [team for team in lane.order(since_ms, first_ms) if team.startswith("batch")]
        assert len(batch) <= 2


@pytest.mark.parametrize("slots", [10, 40])
def test_an_interactive_run_starts_when_the_first_of_the_calls_in_flight_ends(
    real_redis: Redis, slots: int
) -> None:
    lane = SharedLane(real_redis, STEADY, slots=slots, requests_per_minute=0)
    lane.submit(5000, "batch")
    lane.run_to(3)

    for _ in range(5):
        lane.cluster.run_for(0.37)
        since_ms = lane.cluster.now_ms
        lane.submit(3, "visitor", interactive=True)
        lane.cluster.run_for(2)
        assert lane.of("visitor", since_ms)[0].at_ms - since_ms <= CALL_S * 1000
