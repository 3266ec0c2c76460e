"""Calls that hang do not fill a window that their lane has learned, and never exceed one that is stated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, Overloaded, RateLimited, Success, TimedOut
from fairlane.model.tokens import Usage
from tests.support.scheduling import Cluster, assert_complete
from tests.support.stand_ins import FakeWorker

PLACES, LATENCY_S, TIMEOUT_S, FROM_S = 16, 1.0, 120.0, 30.0
REJECTIONS = {429: RateLimited("Too many concurrent requests"), 503: Overloaded("busy", 503)}


class Server:
    """Answers `PLACES` calls at once; ``takes_s`` says how long a call takes that starts at a moment.

    A call that takes longer than its time-out is lost: it leaves its place at once, and its worker waits.
    """

    def __init__(self, takes_s: Callable[[float], float], rejection: Outcome = REJECTIONS[429]) -> None:
        self._takes_s, self._rejection = takes_s, rejection
        self._ends_ms: list[int] = []
        self._waits_ms: list[int] = []
        self.rejected_s: list[float] = []
        self.answered_s: list[float] = []
        self.most = 0  # calls that workers had in flight at once

    def play(self, redis: Redis, limits: dict[str, float], jobs: int) -> float:
        """Seconds until all jobs are done."""
        self.cluster = Cluster(
            redis, provider=self, workers=[FakeWorker("w1", 200)], lanes={"sim:fast": limits}
        )
        self.began_ms = self.cluster.now_ms
        ref = self.cluster.submit(jobs)
        took_s = self.cluster.run_until_finished(ref)
        assert_complete(self.cluster, ref)
        return took_s

    def __call__(self, attempt: Attempt) -> tuple[float, Outcome]:
        now_ms = self.cluster.now_ms - self.began_ms
        self._ends_ms = [end for end in self._ends_ms if end > now_ms]
        self._waits_ms = [end for end in self._waits_ms if end > now_ms]
        if len(self._ends_ms) >= PLACES:
            self.rejected_s.append(now_ms / 1000)
            return 0.02, self._rejection
        takes_s = self._takes_s(now_ms / 1000)
        ends_ms = now_ms + round(1000 * min(takes_s, TIMEOUT_S))
        self._waits_ms.append(ends_ms)
        self.most = max(self.most, len(self._waits_ms))
        if takes_s >= TIMEOUT_S:
            return TIMEOUT_S, TimedOut("no answer within 120 s", deadline_ms=round(1000 * TIMEOUT_S))
        self._ends_ms.append(ends_ms)
        self.answered_s.append(ends_ms / 1000)
        return takes_s, Success("yes", Usage(10, 5))

    def answered(self, from_s: float, to_s: float) -> int:
        """Answers within a time."""
        return sum(from_s <= each < to_s for each in self.answered_s)


def hang(seconds: float) -> Callable[[float], float]:
    """All calls that start within ``seconds`` from `FROM_S` on are lost."""
    return lambda now_s: TIMEOUT_S if FROM_S <= now_s < FROM_S + seconds else LATENCY_S


@pytest.mark.parametrize("status", REJECTIONS)
@pytest.mark.parametrize("seconds", [10.0, 30.0])
def test_a_lane_is_back_within_a_part_of_the_hang(real_redis: Redis, status: int, seconds: float) -> None:
    server = Server(hang(seconds), REJECTIONS[status])
    server.play(real_redis, {}, 1600)
    back_s = FROM_S + seconds * 1.25 + 8 * LATENCY_S
    full = PLACES / LATENCY_S
    assert server.answered(back_s, back_s + 20) >= 0.85 * 20 * full


def test_calls_that_hang_count_in_a_configured_window(real_redis: Redis) -> None:
    server = Server(hang(10.0))
    server.play(real_redis, {"max_concurrency": float(PLACES)}, 800)
    assert server.most == PLACES
    assert not server.rejected_s


@pytest.mark.parametrize(
    ("name", "takes_s"),
    [
        ("stands still", lambda now_s: LATENCY_S + max(0.0, FROM_S + 20 - now_s) * (now_s >= FROM_S)),
        ("is slower", lambda now_s: 30.0 if now_s >= FROM_S else LATENCY_S),
    ],
)
def test_a_server_that_is_only_slow_rejects_few_calls_more(
    real_redis: Redis, name: str, takes_s: Callable[[float], float]
) -> None:
    server = Server(takes_s)
    server.play(real_redis, {}, 800)
    usual = 1 + (server.answered_s[-1] - FROM_S) / 30  # a learned window is tried each half minute
    assert sum(each >= FROM_S for each in server.rejected_s) <= usual + 5, name
