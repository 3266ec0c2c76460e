"""Peers behave as their sources say, and a client of theirs finishes every job or gives it up."""

from __future__ import annotations

import pytest

from tests.benchmarks.zoo.generator import SMALL, generate
from tests.benchmarks.zoo.measure import measure
from tests.benchmarks.zoo.peer_client import play_peer
from tests.benchmarks.zoo.peers import NEVER, PEERS, Aimd, Botocore, DataDesigner, Inspect, Pacing
from tests.benchmarks.zoo.world import AxisLimit
from tests.support.plain_world import plain_world

SLOTS = 400


def test_pacing_at_a_known_limit_keeps_a_deep_bucket_and_uses_it() -> None:
    deep = plain_world(limits=(AxisLimit("requests", 600, "bucket", 2.0),))
    figures = measure(play_peer(deep, "pacing"), "pacing")
    assert figures.refused == 0
    assert figures.used_late == 1
    assert figures.used > 0.9


def test_aimd_halves_once_in_five_seconds_and_grows_by_its_inverse() -> None:
    peer = Aimd(plain_world(), SLOTS)
    peer.limited(0.0, None)
    peer.limited(1.0, None)
    assert peer._bucket.per_second == 5
    peer.limited(5.0, None)
    assert peer._bucket.per_second == 2.5
    peer.succeeded(6.0)
    assert peer._bucket.per_second == pytest.approx(2.9)


def test_inspect_doubles_until_its_first_retry_then_grows_slowly() -> None:
    peer = Inspect(plain_world(), SLOTS)
    for _ in range(20):
        peer.succeeded(1.0)
    assert (peer.wait_s(1.0, 39), peer.wait_s(1.0, 40)) == (0, NEVER)
    peer.limited(2.0, None)
    peer.limited(3.0, None)
    assert (peer.wait_s(3.0, 29), peer.wait_s(3.0, 30)) == (0, NEVER), "0.8 of 40, rounded down to a five"
    for _ in range(30):
        peer.succeeded(20.0)
    assert (peer.wait_s(20.0, 34), peer.wait_s(20.0, 35)) == (0, NEVER)


def test_data_designer_cuts_once_in_a_row_and_stops_above_its_ceiling() -> None:
    peer = DataDesigner(plain_world(), SLOTS)
    peer.limited(0.0, 4.0)
    peer.limited(0.5, None)
    assert peer.wait_s(1.0, 0) == pytest.approx(1.5), "the last 429 had no Retry-After"
    assert peer.wait_s(2.5, 75) == NEVER
    for _ in range(25 * 60):
        peer.succeeded(3.0)
    assert peer.wait_s(3.0, 99) == 0
    assert peer.wait_s(3.0, 100) == NEVER


def test_botocore_sends_freely_until_it_is_throttled() -> None:
    peer = Botocore(plain_world(), SLOTS)
    assert peer.wait_s(0.0, SLOTS - 1) == 0
    for number in range(100):
        peer.succeeded(number / 20)
    peer.limited(5.0, None)
    peer.started(5.0)
    assert peer._bucket.per_second == pytest.approx(20 * 0.7, rel=0.2)
    assert peer.wait_s(5.0, SLOTS) == NEVER


def test_pacing_takes_the_tightest_limit() -> None:
    limits = (AxisLimit("requests", 6000, "bucket", 1.0), AxisLimit("tokens", 9000, "bucket", 1.0))
    peer = Pacing(plain_world(limits=limits), SLOTS)
    assert peer._bucket.per_second == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["inspect", "datadesigner", "botocore"])
def test_a_client_that_does_not_pace_ends_every_job_where_nothing_is_short(name: str) -> None:
    wide = plain_world(limits=(AxisLimit("requests", 60, "bucket", 40.0),), horizon_s=0.9)
    course = play_peer(wide, name)
    assert (course.jobs, course.failed, course.unfinished) == (40, 0, 0)


@pytest.mark.parametrize("name", PEERS)
def test_the_same_seed_gives_the_same_course(name: str) -> None:
    chosen = generate(12, SMALL)
    assert play_peer(chosen, name).arrivals == play_peer(chosen, name).arrivals
