"""Teams whose jobs need different things of a lane each get their share of what they need most."""

from __future__ import annotations

from collections import Counter

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, Success
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster
from tests.support.stand_ins import FakeWorker

LIMITED = {"requests_per_minute": 6000, "tokens_per_minute": 600_000, "burst_seconds": 1.0, "exact": True}
SECONDS = 40


def answers(attempt: Attempt) -> tuple[float, Outcome]:
    used = Usage(500, 500) if attempt.team == "tokens" else Usage(5, 5)
    return 0.5, Success("yes", used)


def shares(cluster: Cluster) -> dict[str, float]:
    """The part of a minute's requests, or tokens, that each team has had."""
    starts = Counter(start.attempt.team for start in cluster.started("sim:fast"))
    return {"requests": starts["requests"] / 6000, "tokens": starts["tokens"] * 1000 / 600_000}


def test_a_team_of_many_tokens_and_one_of_many_requests_get_the_same_share(real_redis: Redis) -> None:
    cluster = Cluster(
        real_redis, lanes={"sim:fast": LIMITED}, provider=answers, workers=[FakeWorker("w1", 500)]
    )
    cluster.submit(8000, team="requests")
    cluster.submit(2000, team="tokens", prompt="x" * 1980, params={"max_tokens": 500})

    cluster.run_for(SECONDS)

    had = shares(cluster)
    assert had["tokens"] == pytest.approx(had["requests"], rel=0.1)
    # Each needs little of what the other needs most: together they get more than one lane's worth.
    assert had["tokens"] + had["requests"] > 1.5 * SECONDS / 60


def test_the_final_use_of_calls_counts(real_redis: Redis) -> None:
    """Jobs that say nothing of their length: only their usage tells whose are long."""
    cluster = Cluster(
        real_redis, lanes={"sim:fast": LIMITED}, provider=answers, workers=[FakeWorker("w1", 500)]
    )
    cluster.submit(8000, team="requests", params={"max_tokens": 500})
    cluster.submit(2000, team="tokens", params={"max_tokens": 500})

    cluster.run_for(SECONDS)

    had = shares(cluster)
    assert had["tokens"] == pytest.approx(had["requests"], rel=0.15)
