"""Without ``now_ms`` the server's clock decides, whatever the machine that asks believes."""

from __future__ import annotations

from redis import Redis

from fairlane.model.job import Claim
from fairlane.store.keys import Keys
from fairlane.store.write.leader import LeaderLease
from fairlane.store.write.permits import Offer
from tests.support.deployment import Deployment

LEASE_MS = 3_600_000


def _server_ms(redis: Redis) -> int:
    seconds, micros = redis.time()
    return int(seconds) * 1000 + int(micros) // 1000


def test_an_empty_time_is_the_servers(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=2, requests_per_minute=1)
    before = _server_ms(real_redis)
    real_redis.delete(d.keys.leader)
    won = LeaderLease(real_redis, Keys("test"), "real", LEASE_MS).acquire()
    grant = d.lanes.grant("sim:fast", won.epoch, [Offer(ref, 2)], room=9, max_in_flight=9, lease_ms=LEASE_MS)
    after = _server_ms(real_redis)
    assert before + LEASE_MS <= won.until_ms <= after + LEASE_MS
    assert grant is not None
    assert before <= grant.now_ms <= after
    assert (len(grant.permits), grant.reason, grant.wait_ms) == (1, "requests", 60_061)
    [lease] = d.leases.lapsed(after + LEASE_MS)
    assert before <= lease.granted_ms <= after
    assert d.leases.lapsed(before) == []
    claim = Claim.of(d.attempts.claim(lease.attempt, "w1", LEASE_MS).run(real_redis))
    assert claim is not None
    assert 0 <= claim.waited_ms <= _server_ms(real_redis) - before
