"""Why a team waits for a lane of which it has its most, or of which the rest is kept for others."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.store.write.permits import Offer, ReservedShare
from fairlane.store.write.workers import WorkerInfo
from fairlane.why.targets import Explainer
from fairlane.why.waiting import Waiting
from tests.support.deployment import Deployment, attempts_of

LANE = "sim:fast"


class Asked:
    """A team's run on a lane that others want, too."""

    def __init__(self, redis: Redis, **limits: float) -> None:
        self.d = Deployment(redis)
        self.d.lane(LANE, burst_seconds=1.0, **limits)
        info = WorkerInfo("w1", 100, (LANE,), "1", 1, "box", 0)
        self.d.workers.beat("w1", info, [], 1000, changed=True, now_ms=self.d.now_ms).run(redis)
        self.ref = self.d.submit(rows=10)
        self.d.feed(self.ref, 10)
        self.taken: list[Attempt] = []

    def ask(self, own: float = 0.0, most: float = 1.0) -> None:
        offers = [Offer(self.ref, 10)]
        grant = self.d.ask(offers, shares={"search": ReservedShare(0, most), "ads": ReservedShare(own)})
        self.taken = attempts_of(grant, offers, LANE)

    def why(self) -> Waiting:
        return Explainer(self.d.redis, self.d.keys, "search", {}, self.d.now_ms).why("r1")


def test_a_team_at_its_maximum_rate_is_delayed_until_a_known_time(real_redis: Redis) -> None:
    asked = Asked(real_redis, requests_per_minute=600)
    asked.ask(most=0.1)
    found = asked.why()
    assert found.constraint == "team_share"
    assert found.sentence == "team search has 10 % of sim:fast, the most that it may take"
    assert found.until_ms is not None
    assert 0 < found.until_ms - asked.d.now_ms <= 1000
    asked.d.advance(found.until_ms - asked.d.now_ms)
    assert asked.why().constraint != "team_share"


def test_a_team_at_its_most_of_a_window_waits_until_a_call_of_its_ends(real_redis: Redis) -> None:
    asked = Asked(real_redis, max_concurrency=10)
    asked.ask(most=0.2)
    assert (asked.why().constraint, asked.why().until_ms) == ("team_share", None)
    (first, _) = asked.taken
    asked.d.claim(first)
    asked.d.finish(first)
    assert asked.why().constraint != "team_share"


def test_a_lane_of_which_the_rest_is_kept_says_so(real_redis: Redis) -> None:
    asked = Asked(real_redis, requests_per_minute=60)
    asked.ask(own=0.9)
    found = asked.why()
    assert found.constraint == "reserved"
    assert "reserved for teams that do not lend it" in found.sentence


@pytest.mark.parametrize("most", [0.5, 1.0])
def test_a_share_that_leaves_room_is_not_mentioned(real_redis: Redis, most: float) -> None:
    asked = Asked(real_redis, requests_per_minute=0, max_concurrency=100)
    asked.ask(most=most)
    assert asked.why().constraint not in ("team_share", "reserved")
