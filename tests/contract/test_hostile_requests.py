"""A team asks for hundreds of thousands of things, or for what takes all day: nobody else waits for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest
from redis import Redis
from structlog.testing import capture_logs

from fairlane.core.clock import ManualClock
from fairlane.datasets.rows import encode_page
from fairlane.model.run import RunRef, RunState
from fairlane.store.write.runs.archive_stub import ArchiveStubs
from fairlane.store.write.runs.inbox import UPLOAD_TTL_S
from fairlane_scheduler.dispatch import fairness
from fairlane_scheduler.intake import admission
from fairlane_scheduler.intake.receiver import TICK_MS, TURN_MS
from fairlane_scheduler.upkeep.janitor import Janitor
from tests.support.scheduler_parts import Parts

TRIP_MS = 1.0  # what a round trip takes on the clock of these tests
WRITTEN_AT_ONCE = 20_000
REQUESTS, WRONG_RUNS = 200_000, 4_000

Words = tuple[Any, ...]


def write(redis: Redis, commands: Iterator[Words]) -> None:
    """Send that many commands, many at a time."""
    while some := list(islice(commands, WRITTEN_AT_ONCE)):
        pipeline = redis.pipeline(transaction=False)
        for words in some:
            pipeline.execute_command(*words)
        pipeline.execute()


def asked(run: str, op: str = "submit") -> str:
    return json.dumps({"op": op, "run": run})


def push(parts: Parts, entries: Iterator[str]) -> None:
    """Requests of the team ``flood``."""
    inbox = parts.keys.inbox("flood")
    batches = iter(lambda: list(islice(entries, 5000)), [])
    write(parts.redis, (("RPUSH", inbox, *some) for some in batches))


def good(parts: Parts, run: str = "r1", team: str = "search") -> RunRef:
    return parts.upload(parts.spec(1, run=run, team=team), [{"q": 1}])


def keys_of(parts: Parts, team: str) -> list[str]:
    """All that lies under a team's prefixes."""
    return [
        key.decode(errors="surrogateescape")
        for part in ("team", "run")
        for key in parts.redis.scan_iter(f"*:{part}:{team}:*", 5000)
    ]


@dataclass(slots=True)
class Trips:
    """Round trips to the server, each of which takes `TRIP_MS`, and the bytes that came back."""

    redis: Redis
    clock: ManualClock
    count: int = 0

    @contextmanager
    def of(self, act: Callable[[], Any]) -> Iterator[tuple[int, int]]:
        before, bytes_before = self.count, self._bytes()
        act()
        yield self.count - before, self._bytes() - bytes_before

    def _bytes(self) -> int:
        return int(self.redis.info("stats")["total_net_output_bytes"])

    def tell(self) -> None:
        self.count += 1
        self.clock.advance(TRIP_MS / 1000)


@pytest.fixture
def parts(real_redis: Redis) -> Parts:
    return Parts(real_redis)


@pytest.fixture
def trips(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> Trips:
    """Counts what this test's scheduler asks, once it is asked for: what is written before takes no time."""
    counted = Trips(parts.redis, parts.clock)
    pool = parts.redis.connection_pool
    get = pool.get_connection

    def counting(*words: Any, **options: Any) -> Any:
        counted.tell()
        return get(*words, **options)

    monkeypatch.setattr(pool, "get_connection", counting)
    return counted


def tick_until(parts: Parts, done: Callable[[], bool], most: int) -> int:
    """Tick, for inboxes that are announced and those that are found; how often, until that was so."""
    for number in range(1, most + 1):
        later(parts, 0.05)
        parts.receiver.tick(None if number % 10 == 1 else set(), parts.moment())
        if done():
            return number
    raise AssertionError(f"not within {most} ticks")


def later(parts: Parts, seconds: float) -> None:
    """Time goes by, in which the leader keeps its lease."""
    parts.clock.advance(seconds)
    parts.leader.tick(parts.clock.monotonic_ms(), parts.now_ms)


def state(parts: Parts, ref: RunRef) -> str | None:
    return parts.state(ref).get("state")


def test_a_flood_of_requests_lets_anothers_run_in_with_the_first_tick(parts: Parts, trips: Trips) -> None:
    push(parts, (asked(f"r{n}") for n in range(REQUESTS)))
    ref = good(parts)
    with trips.of(lambda: parts.receiver.tick(None, parts.moment())) as (count, read):
        pass
    assert state(parts, ref) == RunState.RUNNING
    assert count <= 2 * TICK_MS / TRIP_MS
    assert read <= 1_000_000, "of the 7 MB that lie there"


def test_every_later_run_of_another_team_waits_for_one_turn_at_most(parts: Parts, trips: Trips) -> None:
    push(parts, (asked(f"r{n}") for n in range(10_000)))
    parts.receiver.tick(None, parts.moment())
    for number in range(20):
        ref = good(parts, f"r{number}")
        with trips.of(lambda: parts.receiver.tick({"search"}, parts.moment())) as (count, _):
            assert state(parts, ref) == RunState.RUNNING
            assert count <= 2 * (TICK_MS + TURN_MS) / TRIP_MS


def test_a_flood_of_wrong_runs_is_refused_and_leaves_a_bounded_number_of_keys(
    real_redis: Redis,
) -> None:
    parts = Parts(real_redis)
    wrong = '{"version": 1, "rows": "many"}'
    refs = [RunRef("flood", f"r{n}") for n in range(WRONG_RUNS)]
    write(parts.redis, (("SET", parts.keys.spec(ref), wrong) for ref in refs))
    push(parts, (asked(ref.run) for ref in refs))
    other = good(parts)
    with capture_logs() as logs:
        tick_until(parts, lambda: not parts.redis.exists(parts.keys.inbox("flood")), 500)
    refused = [line for line in logs if line["event"] == "run_refused"]
    assert len(refused) == WRONG_RUNS, "each has a record in the log"
    assert all(line["reason"] for line in refused)
    assert state(parts, other) == RunState.RUNNING
    kept = [key for key in keys_of(parts, "flood") if key.endswith(":state")]
    assert len(kept) == admission.REJECTED_KEPT
    assert parts.redis.zcard(parts.keys.runs("flood")) == admission.REJECTED_KEPT
    assert parts.state(RunRef("flood", refused[-1]["run"]))["reason"], (
        "the latest requests are refused with a reason"
    )


def test_what_a_team_leaves_without_an_end_is_given_one_and_what_runs_own_is_not(parts: Parts) -> None:
    owned = good(parts, team="flood")
    parts.receiver.tick(None, parts.moment())
    junk = [f"{parts.keys.prefix}team:flood:junk:{n}" for n in range(8_000)]
    specs = [parts.keys.spec(RunRef("flood", f"s{n}")) for n in range(8_000)]
    write(parts.redis, (("SET", key, "x") for key in (*junk, *specs)))
    parts.redis.hset(f"{parts.keys.prefix}team:flood:\udcff".encode(errors="surrogateescape"), "a", "b")
    stubs, reads = ArchiveStubs(parts.redis, parts.keys), Trips(parts.redis, parts.clock)
    janitor = Janitor(parts.inbox, parts.clock, parts.backlog, stubs)
    with reads.of(janitor.tick) as (_, read):
        assert read <= 4_000_000
    everything = keys_of(parts, "flood")
    endless = [key for key in everything if parts.redis.ttl(key.encode(errors="surrogateescape")) == -1]
    assert len(everything) > 16_000
    assert {key.removeprefix(parts.keys.prefix) for key in endless} == {
        "team:flood:run:r1:spec",
        "team:flood:run:r1:rows",
        "run:flood:r1:state",
        "run:flood:r1:plan",
        "run:flood:index",
    }
    assert parts.redis.ttl(junk[0]) <= UPLOAD_TTL_S
    assert state(parts, owned) == RunState.RUNNING


def test_a_refused_run_leaves_neither_its_rows_nor_a_large_spec(parts: Parts) -> None:
    refs = [RunRef("flood", name) for name in ("small", "large", "odd")]
    for ref, spec in zip(refs, ("{}", "x" * 1_000_000, None), strict=True):
        parts.redis.hset(parts.keys.rows(ref), "0", encode_page([{"q": "x" * 1000}] * 100))
        if spec is None:
            parts.redis.rpush(parts.keys.spec(ref), "x")
        else:
            parts.redis.set(parts.keys.spec(ref), spec)
        parts.runs.refuse(ref, "because", parts.now_ms, parts.leader.epoch, parts.now_ms)
    assert [parts.redis.exists(parts.keys.rows(ref)) for ref in refs] == [0, 0, 0]
    assert [parts.redis.exists(parts.keys.spec(ref)) for ref in refs] == [1, 0, 0]
    assert all(parts.redis.ttl(key) > 0 for key in keys_of(parts, "flood") if not key.endswith(":index"))


def test_only_a_refused_run_can_be_forgotten_and_only_by_the_leader(parts: Parts) -> None:
    running, refused = good(parts), RunRef("search", "r2")
    parts.receiver.tick(None, parts.moment())
    parts.runs.refuse(refused, "because", parts.now_ms, parts.leader.epoch, parts.now_ms)
    epoch, stale = parts.leader.epoch, parts.leader.epoch - 1
    assert not parts.runs.forget_refused(running, epoch, parts.now_ms)
    assert not parts.runs.forget_refused(refused, stale, parts.now_ms)
    assert parts.runs.forget_refused(refused, epoch, parts.now_ms)
    assert (state(parts, running), state(parts, refused)) == (RunState.RUNNING, None)
    assert parts.redis.zrange(parts.keys.runs("search"), 0, -1) == [b"r1"]


def spec_with(parts: Parts, run: str, **fields: Any) -> str:
    return json.dumps(json.loads(parts.spec(1, team="flood", run=run).model_dump_json()) | fields)


def prompts(*texts: str) -> dict[str, Any]:
    return {"prompts": [[{"role": "user", "content": text}] for text in texts]}


COSTLY: dict[str, tuple[dict[str, Any], str]] = {
    "many templates": (prompts(*("{{ a }}" * 1000 + str(n) for n in range(20))), "10,000 words and signs"),
    "one template": (prompts("{% for a in b %}{{ a }}{% endfor %}" * 1200), "10,000 words and signs"),
    "long templates": (
        prompts(*("x" * 900_000 + "{{ a }}" + str(n) for n in range(3))),
        "2,000,000 characters",
    ),
    "templates of models": (
        {"models": ["sim:" + "{{ a }}" * 1000 + str(n) for n in range(20)]},
        "10,000 words",
    ),
}


@pytest.mark.parametrize("kind", COSTLY)
def test_templates_that_take_seconds_to_compile_are_refused_uncompiled(
    parts: Parts, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields, shown = COSTLY[kind]
    ref = RunRef("flood", "r1")
    parts.redis.set(parts.keys.spec(ref), spec_with(parts, "r1", **fields))
    push(parts, iter([asked("r1")]))
    monkeypatch.setattr("fairlane_scheduler.intake.admission.Rendering", lambda _: pytest.fail("compiled"))
    parts.receiver.tick(None, parts.moment())
    assert shown in parts.state(ref)["reason"]


@pytest.mark.parametrize("value", ["[]", "{}", "0", '[","]'])
def test_a_spec_of_too_many_values_is_refused_before_it_is_read(
    parts: Parts, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, many = RunRef("flood", "r1"), f"[{','.join([value] * 60_000)}]"
    text = spec_with(parts, "r1", params={"stop": "<here>"}).replace('"<here>"', many)
    parts.redis.set(parts.keys.spec(ref), text)
    push(parts, iter([asked("r1")]))
    monkeypatch.setattr("fairlane_scheduler.intake.admission._read_spec", lambda *_: pytest.fail("read"))
    parts.receiver.tick(None, parts.moment())
    assert "more than 50,000 values" in parts.state(ref)["reason"]


def test_what_stands_in_texts_is_no_value() -> None:
    assert admission.values_of(b'{"a":"[,{\\",[{,","b":[1,2]}') == 4
    assert admission.values_of(b'"' + b"," * 4_000_000) == 4_000_000, "a text without an end is none"
    assert admission.values_of(b'"' + b"," * 4_000_000 + b'"') == 0


@pytest.mark.parametrize("sign", [b'\\"', b"\\\\", b'"', b"a\\", b'",'])
def test_a_spec_is_measured_in_time_linear_in_it(sign: bytes) -> None:
    began = time.process_time()
    admission.values_of(b'"' + sign * 40_000)
    assert time.process_time() - began < 0.5, "a text without an end is sought from each of its quotes"


def test_a_spec_of_quotes_that_nothing_ends_holds_up_nobody(parts: Parts) -> None:
    ref = RunRef("flood", "r1")
    parts.redis.set(parts.keys.spec(ref), b'"' + b'\\"' * 30_000)
    push(parts, iter([asked("r1")]))
    began = time.process_time()
    parts.receiver.tick(None, parts.moment())
    assert time.process_time() - began < 1
    assert state(parts, ref) == RunState.REFUSED


def many_pages(parts: Parts, pages: int, uploaded: int) -> RunRef:
    """A submission of so many pages of a row, of which the first are there."""
    ref = RunRef("flood", "r1")
    parts.redis.set(parts.keys.spec(ref), spec_with(parts, "r1", rows=pages, page_rows=1))
    page = encode_page([{"q": "x"}])
    write(parts.redis, (("HSET", parts.keys.rows(ref), str(n), page) for n in range(uploaded)))
    push(parts, iter([asked("r1")]))
    return ref


def test_a_run_of_most_pages_lets_anothers_run_in_with_the_first_tick(parts: Parts, trips: Trips) -> None:
    many_pages(parts, admission.MOST_PAGES, 1)
    other = good(parts)
    began = trips.count
    parts.receiver.tick(None, parts.moment())
    assert state(parts, other) == RunState.RUNNING
    assert trips.count - began < 100, "its pages are measured in this tick"


@pytest.mark.parametrize(("missing", "expected"), [(0, RunState.RUNNING), (700, RunState.REFUSED)])
def test_pages_that_are_measured_in_several_ticks_are_all_counted(
    parts: Parts, missing: int, expected: RunState
) -> None:
    pages = 2 * admission.PAGES_MEASURED_AT_ONCE + 5
    ref = many_pages(parts, pages, pages - missing)
    ticks = 0
    while parts.redis.llen(parts.keys.inbox("flood")):
        assert state(parts, ref) is None
        parts.receiver.tick({"flood"}, parts.moment())
        parts.clock.advance(admission.NEXT_PAGES_MS / 1000)
        ticks += 1
    assert ticks == 3
    assert state(parts, ref) == expected
    if missing:
        assert f"{missing:,} of {pages:,} pages are missing" in parts.state(ref)["reason"]


def test_a_run_is_refused_at_the_first_page_beyond_its_bytes(parts: Parts) -> None:
    parts.admission._limits._limits = parts.admission._limits._limits.model_copy(update={"run_bytes": 500})
    ref = many_pages(parts, admission.MOST_PAGES, 50)
    parts.receiver.tick({"flood"}, parts.moment())
    assert "scheduler.limits.run_bytes" in parts.state(ref)["reason"]


def test_prompts_as_people_write_them_are_not_too_many(parts: Parts) -> None:
    text = "You are a judge.\n{% for d in documents %}{{ loop.index }}. {{ d.title }}\n{% endfor %}{{ q }}\n"
    ref = RunRef("flood", "r1")
    parts.redis.set(
        parts.keys.spec(ref), spec_with(parts, "r1", **prompts(*(text + str(n) for n in range(100))))
    )
    parts.redis.hset(parts.keys.rows(ref), "0", encode_page([{"q": "x"}]))
    push(parts, iter([asked("r1")]))
    parts.receiver.tick(None, parts.moment())
    assert state(parts, ref) == RunState.RUNNING


def test_a_team_whose_request_took_long_is_throttled_and_no_other_waits(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    busy, plan = [0.0], parts.admission._plan

    def slowly(ref: RunRef, text: bytes) -> Any:
        busy[0] += 500 if ref.team == "flood" else 1
        return plan(ref, text)

    monkeypatch.setattr(parts.admission, "_plan", slowly)
    monkeypatch.setattr(parts.receiver, "_throttle", fairness.TeamThrottle(50, lambda: busy[0]))
    flood = [good(parts, f"r{n}", "flood") for n in range(3)]
    with capture_logs() as logs:
        wait_ms = parts.receiver.tick(None, parts.moment())
    assert [state(parts, ref) for ref in flood] == [RunState.RUNNING, None, None]
    assert wait_ms == 500 * fairness.THROTTLE_RATIO
    assert [(line["team"], line["throttled_ms"]) for line in logs if line["event"] == "team_throttled"] == [
        ("flood", 4500)
    ]
    for number in range(5):
        ref = good(parts, f"r{number}")
        parts.receiver.tick({"search", "flood"}, parts.moment())
        assert state(parts, ref) == RunState.RUNNING
    assert state(parts, flood[1]) is None
    later(parts, 4.5)
    parts.receiver.tick(set(), parts.moment())
    assert [state(parts, ref) for ref in flood] == [RunState.RUNNING, RunState.RUNNING, None]


def test_a_run_whose_items_take_long_to_render_throttles_its_team_and_no_other(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = good(parts, team="flood"), parts.upload(parts.spec(5), [{"q": n} for n in range(5)])
    again = good(parts, "r2", "flood")
    parts.receiver.tick(None, parts.moment())
    busy, place = [0.0], parts.feeder._placement.place

    def slowly(run: Any, *more: Any) -> Any:
        busy[0] += 400 if run.ref.team == "flood" else 1
        return place(run, *more)

    monkeypatch.setattr(parts.feeder._placement, "place", slowly)
    monkeypatch.setattr(parts.feeder, "_throttle", fairness.TeamThrottle(100, lambda: busy[0]))
    parts.feeder.tick(parts.moment())
    fed = {ref: len(parts.queued(ref, "sim:fast")) for ref in (slow, again, quick)}
    assert fed == {slow: 1, again: 0, quick: 5}
    assert parts.feeder.wait_ms(parts.clock.monotonic_ms()) == 400 * fairness.THROTTLE_RATIO
    later(parts, 3.6)
    parts.feeder.tick(parts.moment())
    assert len(parts.queued(again, "sim:fast")) == 1


def hostile_texts() -> Sequence[bytes]:
    return (
        b"[" * 1_000_000,
        b'{"a":' * 300_000 + b"1" + b"}" * 300_000,
        b'{"op":"submit","run":' + b"9" * 900 + b"}",
        b'{"op":"submit","run":"\xff\xfe"}',
        b'{"op":"submit","run":"\\ud800"}',
        b'{"op":["submit"],"run":{"a":1}}',
        b'{"op":"submit","run":null}',
        b'{"op":"extend","run":"r","rows":1e400}',
        b'{"op":"extend","run":"r","rows":-1}',
        b"NaN",
        b"\x00" * 1000,
        b"",
    )


def test_a_hundred_thousand_entries_that_are_no_requests_are_passed_over(parts: Parts, trips: Trips) -> None:
    texts = hostile_texts()
    small = [text for text in texts if len(text) < 2000]
    inbox = parts.keys.inbox("flood")
    write(parts.redis, (("RPUSH", inbox, *(small[n % len(small)] for n in range(1000))) for _ in range(100)))
    parts.redis.rpush(inbox, *texts)
    ref = good(parts)
    with trips.of(lambda: parts.receiver.tick(None, parts.moment())) as (count, read):
        assert state(parts, ref) == RunState.RUNNING
        assert count <= 2 * TICK_MS / TRIP_MS
        assert read <= 3_000_000
    last = good(parts, "last", "flood")
    tick_until(parts, lambda: not parts.redis.exists(inbox), 300)
    assert state(parts, last) == RunState.RUNNING


@pytest.mark.parametrize("rows", [b"\xff\xfe", b"x" * 5_000_000], ids=["garbage", "long garbage"])
def test_rows_that_are_no_page_end_their_own_items_alone(parts: Parts, rows: bytes) -> None:
    ref, other = RunRef("flood", "r1"), good(parts)
    parts.redis.set(parts.keys.spec(ref), parts.spec(3, team="flood").model_dump_json())
    parts.redis.hset(parts.keys.rows(ref), "0", rows)
    push(parts, iter([asked("r1")]))
    parts.receiver.tick(None, parts.moment())
    parts.feed_all()
    assert parts.state(ref)["state"] == RunState.COMPLETED
    assert parts.state(ref)["items_done"] == "3"
    assert len(parts.queued(other, "sim:fast")) == 1
