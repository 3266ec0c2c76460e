"""The scheduler drops no request, however many wait: each has an effect or a record."""

from __future__ import annotations

import random

import pytest
from redis import Redis

from fairlane.datasets.rows import encode_page
from fairlane.model.run import RunRef, RunState
from tests.support.scheduler_parts import Parts


def limited(redis: Redis, waiting_requests: int) -> Parts:
    return Parts(redis, limits={"waiting_requests": waiting_requests})  # type: ignore[arg-type]


def tick(parts: Parts, times: int) -> None:
    for _ in range(times):
        parts.clock.advance(0.05)
        parts.leader.tick(parts.clock.monotonic_ms(), parts.now_ms)
        parts.receiver.tick({"search"}, parts.moment())


def state(parts: Parts, ref: RunRef) -> str:
    return parts.state(ref)["state"]


def test_each_of_many_submissions_is_admitted_or_refused(fake_redis: Redis) -> None:
    parts = limited(fake_redis, 30)
    refs = [parts.upload(parts.spec(1, run=f"r{n:03}"), [{"q": 1}]) for n in range(90)]
    tick(parts, 3)
    assert {state(parts, ref) for ref in refs} == {RunState.RUNNING}


@pytest.mark.parametrize("seed", range(12))
def test_requests_take_effect_in_their_order_wherever_they_lie(fake_redis: Redis, seed: int) -> None:
    rng = random.Random(seed)
    parts = limited(fake_redis, rng.randrange(1, 20))
    expected: dict[RunRef, dict[str, object]] = {}
    for n in range(rng.randrange(20, 60)):
        ref = rng.choice(list(expected)) if expected and rng.random() < 0.7 else None
        if ref is None:
            spec = parts.spec(0, run=f"r{n}", open=True, page_rows=1)
            expected[parts.upload(spec, [])] = {"state": "running", "rows": 0, "paused": False, "open": True}
            continue
        known, ask = expected[ref], rng.choice(["cancel", "pause", "resume", "extend", "close"])
        running = known["state"] == "running"
        match ask:
            case "cancel":
                parts.outbox.cancel(ref)
                known["state"] = "cancelled" if running else known["state"]
            case "pause" | "resume":
                getattr(parts.outbox, ask)(ref, "ann")
                known["paused"] = (ask == "pause") if running else known["paused"]
            case _ if known["open"]:
                rows = int(str(known["rows"])) + 1
                parts.outbox.append(ref, rows - 1, encode_page([{"q": 1}]))
                parts.outbox.extend(ref, rows, last=ask == "close")
                if running:
                    known |= {"rows": rows, "open": ask != "close"}
            case _:
                pass
        if rng.random() < 0.1:
            tick(parts, 1)
        if rng.random() < 0.1:
            parts.loader.forget_all()  # a new term, which has loaded no run so far
    tick(parts, 3)
    assert parts.outbox.waiting("search") == 0
    for ref, known in expected.items():
        found = parts.state(ref)
        assert found["state"] == known["state"]
        if known["state"] == "running":
            assert (int(found["rows"]), "open" in found) == (known["rows"], known["open"])
            assert parts.runs.extent(ref).paused is known["paused"]


def test_the_last_rows_of_a_run_that_a_new_leader_has_not_loaded_are_added(parts: Parts) -> None:
    ref = parts.upload(parts.spec(0, open=True, page_rows=1), [])
    tick(parts, 1)
    parts.loader.forget_all()
    parts.outbox.append(ref, 0, encode_page([{"q": 1}]))
    parts.outbox.extend(ref, 1, last=True)
    tick(parts, 1)
    assert (parts.state(ref)["rows"], "open" in parts.state(ref)) == ("1", False)
