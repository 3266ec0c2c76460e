"""Batching: shared round trips, a Redis that goes away and comes back, and calls that fail alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any
from unittest.mock import AsyncMock

import fakeredis
import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import DataError, ReadOnlyError, RedisError, ResponseError
from structlog.testing import capture_logs

from fairlane.model.job import Attempt
from fairlane.store.keys import Keys
from fairlane.store.script import Call
from fairlane.store.verbs import script
from fairlane.store.write.attempts import Attempts
from fairlane_workers.execution.batcher import (
    AWAY_MOST_S,
    BATCH,
    MOST_MERGED,
    MOST_OFFERED,
    Absence,
    Batcher,
    Command,
    _together,
)


class Wire(Batcher):
    """A batcher on an imitated Redis; ``trips`` are the sizes of its round trips."""

    def __init__(self, server: fakeredis.FakeServer, away_most_s: float) -> None:
        self.server, self.client = server, fakeredis.FakeAsyncRedis(server=server)
        super().__init__(self.client, self._note, away_most_s=away_most_s)
        self.trips: list[int] = []
        self.pauses: list[float] = []
        self.on_pause: Callable[[], object] = lambda: None
        self.twist: Callable[[list[Any]], list[Any]] = lambda replies: replies

    async def _round_trip(self, commands: Any) -> list[Any]:
        self.trips.append(len(commands))
        return self.twist(await super()._round_trip(commands))

    async def _note(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()


def on_wire(scene: Callable[[Wire], Coroutine[Any, Any, None]], away_most_s: float = AWAY_MOST_S) -> None:
    async def play() -> None:
        wire = Wire(fakeredis.FakeServer(), away_most_s)
        await scene(wire)
        await wire.client.aclose()

    asyncio.run(play())


def resign() -> Call:
    """A small script: it gives up a leadership that nobody holds."""
    return script("leader_resign").bind({"leader": "leader"}, {"id": "me"})


async def gather(wire: Wire, *commands: Command) -> list[Any]:
    return await asyncio.gather(*(wire.send(command) for command in commands), return_exceptions=True)


def test_what_is_sent_together_shares_a_round_trip() -> None:
    async def scene(wire: Wire) -> None:
        replies = await gather(wire, *[("INCR", "n")] * 20)

        assert replies == list(range(1, 21))
        assert wire.trips == [20]

    on_wire(scene)


def claim(n: int, run: str = "r1", lane: str = "sim:fast") -> Call:
    return Attempts(Keys("test")).claim(Attempt(run, "search", n, 1, lane), "w1", 1000, 0)


def test_calls_of_one_script_with_the_same_keys_are_sent_as_one_and_each_gets_its_reply() -> None:
    async def scene(wire: Wire) -> None:
        for n in range(0, 3 * MOST_MERGED, 2):
            record = {"job": n, "lane": "sim:fast", "ref": "search/r1", "granted_ms": -n, "n": n + 1}
            await wire.client.hset(Keys("test").leased, claim(n).args[1], json.dumps(record))
        calls = [claim(n) for n in range(2 * MOST_MERGED)]
        replies = await gather(wire, *calls[:3], ("INCR", "n"), *calls[3:], claim(0, run="r2"))

        assert replies.pop(3) == 1
        assert replies.pop() is None
        waited = [reply and json.loads(reply)["waited_ms"] for reply in replies]
        assert waited == [None if n % 2 else n for n in range(2 * MOST_MERGED)]
        sent = [len(places) for _, places in _together([*calls, ("INCR", "n"), claim(0, run="r2")])]
        assert sent == [1, MOST_MERGED, MOST_MERGED, 1]

    on_wire(scene)


def test_a_call_that_fails_among_others_sent_as_one_fails_alone() -> None:
    async def scene(wire: Wire) -> None:
        await wire.client.hset(Keys("test").leased, claim(1).args[1], "no record")
        replies = await gather(wire, claim(0), claim(1), claim(2))
        assert [type(reply) for reply in replies] == [type(None), ResponseError, type(None)]

    on_wire(scene)


def test_commands_during_a_round_trip_share_the_next() -> None:
    async def scene(wire: Wire) -> None:
        late: list[asyncio.Task[Any]] = []

        def more(replies: list[Any]) -> list[Any]:
            if len(wire.trips) == 1:
                late.extend(asyncio.create_task(wire.send(("INCR", "n"))) for _ in range(7))
            return replies

        wire.twist = more
        await wire.send(("INCR", "n"))
        await asyncio.gather(*late)

        assert wire.trips[0] == 1
        assert sum(wire.trips) == 8

    on_wire(scene)


def test_a_command_that_is_not_urgent_waits_for_others_after_a_recent_send() -> None:
    async def scene(wire: Wire) -> None:
        loop = asyncio.get_running_loop()
        await wire.send(("INCR", "n"), urgent=False)
        assert wire.trips == [1]  # nothing was sent for long: it goes at once
        wire._sent_at = loop.time() + 3600
        late = [wire.send(("INCR", "n"), urgent=False) for _ in range(3)]
        assert await asyncio.gather(*late, wire.send(("INCR", "n"))) == [2, 3, 4, 5]
        assert wire.trips == [1, 4]  # what is urgent takes along what waits

    on_wire(scene)


def test_a_patient_command_waits_for_others_even_on_an_idle_connection() -> None:
    async def scene(wire: Wire) -> None:
        patient = [
            asyncio.create_task(wire.send(("INCR", "n"), urgent=False, patience_s=3600)) for _ in range(3)
        ]
        await asyncio.wait(patient, timeout=0)
        assert wire.trips == []
        hurried = asyncio.create_task(wire.send(("INCR", "n"), urgent=False))
        assert await asyncio.gather(*patient, hurried) == [1, 2, 3, 4]
        assert wire.trips == [4]  # what may wait for less takes along what may wait for more

    on_wire(scene)


def test_a_patient_command_is_sent_alone_after_its_patience() -> None:
    async def scene(wire: Wire) -> None:
        sent = wire.send(("INCR", "n"), urgent=False, patience_s=0.001)
        assert await asyncio.wait_for(sent, timeout=10) == 1
        assert await wire.send(("INCR", "n")) == 2
        assert wire.trips == [1, 1]

    on_wire(scene)


def test_a_command_that_waits_for_others_is_sent_in_time() -> None:
    async def scene(wire: Wire) -> None:
        await asyncio.gather(*(wire.send(("INCR", "n"), urgent=False) for _ in range(3)))
        await asyncio.wait_for(wire.send(("INCR", "n"), urgent=False), timeout=10)
        assert wire.trips == [3, 1]

    on_wire(scene)


def test_a_batch_is_bounded() -> None:
    async def scene(wire: Wire) -> None:
        await gather(wire, *[("INCR", "n")] * (2 * BATCH + 1))

        assert wire.trips == [BATCH, BATCH, 1]

    on_wire(scene)


def test_replies_go_to_those_who_asked() -> None:
    async def scene(wire: Wire) -> None:
        await gather(wire, *[("SET", f"k{n}", f"v{n}") for n in range(50)])

        assert await gather(wire, *[("GET", f"k{n}") for n in range(50)]) == [b"v%d" % n for n in range(50)]

    on_wire(scene)


def test_a_script_that_the_server_does_not_know_is_loaded() -> None:
    async def scene(wire: Wire) -> None:
        assert await gather(wire, resign(), ("SET", "k", "v"), resign()) == [0, True, 0]
        assert await wire.send(resign()) == 0

    on_wire(scene)


def test_a_server_that_forgot_its_scripts_learns_them_again() -> None:
    async def scene(wire: Wire) -> None:
        await wire.send(resign())
        await wire.client.script_flush()

        assert await gather(wire, resign(), resign()) == [0, 0]

    on_wire(scene)


def test_a_call_that_the_server_refuses_fails_alone() -> None:
    async def scene(wire: Wire) -> None:
        await wire.send(("SET", "text", "x"))
        first, refused, last = await gather(wire, ("SET", "a", "1"), ("INCR", "text"), ("GET", "a"))

        assert (first, last) == (True, b"1")
        assert isinstance(refused, ResponseError)

    on_wire(scene)


@pytest.mark.parametrize("argument", [None, object(), ["list"], {"a": 1}])
def test_what_redis_cannot_take_fails_before_it_is_sent(argument: Any) -> None:
    async def scene(wire: Wire) -> None:
        bad, good = await gather(wire, ("SET", "k", argument), ("SET", "k", "v"))

        assert isinstance(bad, DataError)
        assert good is True

    on_wire(scene)


def test_text_that_no_encoding_takes_is_sent_as_it_can_be() -> None:
    async def scene(wire: Wire) -> None:
        await gather(wire, ("SET", "k", "half a pair: \ud800"), ("SET", "other", "v"))

        assert await wire.send(("GET", "k")) == b"half a pair: ?"

    on_wire(scene)


def test_a_redis_that_is_away_is_waited_for_and_nothing_is_dropped() -> None:
    async def scene(wire: Wire) -> None:
        wire.server.connected = False

        def come_back() -> None:
            wire.server.connected = len(wire.pauses) >= 7

        wire.on_pause = come_back
        with capture_logs() as logs:
            replies = await gather(wire, *[("INCR", "n")] * 5)

        assert replies == [1, 2, 3, 4, 5]
        assert wire.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, AWAY_MOST_S, AWAY_MOST_S]
        assert [line["event"] for line in logs] == ["store_unreachable", "store_back"]

        wire.server.connected, wire.on_pause = False, lambda: setattr(wire.server, "connected", True)
        wire.pauses.clear()
        await wire.send(("INCR", "n"))
        assert wire.pauses == [0.05], "the next absence begins with a short pause again"

    on_wire(scene)


def test_a_claim_waits_for_no_report_of_the_other_batcher() -> None:
    async def scene(claims: Wire) -> None:
        reports = Wire(claims.server, AWAY_MOST_S)
        reached, go = asyncio.Event(), asyncio.Event()

        async def held(commands: Any, send: Any = reports._round_trip) -> Any:
            reached.set()
            await go.wait()
            return await send(commands)

        reports._round_trip = held  # type: ignore[method-assign]
        report = asyncio.create_task(reports.send(("INCR", "n"), urgent=False))
        await reached.wait()
        assert await claims.send(("GET", "n")) is None, "the report is still on its way"
        go.set()
        assert await report == 1
        await reports.client.aclose()

    on_wire(scene)


def test_batchers_of_one_worker_log_an_absence_once() -> None:
    async def scene(wire: Wire) -> None:
        absence, waiting, back = Absence(), asyncio.Semaphore(0), asyncio.Event()

        async def pause(_: float) -> None:
            waiting.release()
            await back.wait()

        pair = [Batcher(wire.client, pause, absence=absence) for _ in range(2)]
        wire.server.connected = False
        with capture_logs() as logs:
            sent = [asyncio.create_task(each.send(("INCR", "n"))) for each in pair]
            for _ in pair:
                await waiting.acquire()
            assert None not in [each.trouble for each in pair]
            wire.server.connected = True
            back.set()
            assert sorted(await asyncio.gather(*sent)) == [1, 2]
        assert [line["event"] for line in logs] == ["store_unreachable", "store_back"]
        assert [each.trouble for each in pair] == [None, None]

    on_wire(scene)


def test_offers_that_are_lost_leave_no_absence_behind() -> None:
    async def scene(wire: Wire) -> None:
        absence = Absence()
        offering = Batcher(wire.client, wire._note, absence=absence)
        wire.server.connected = False
        offering.offer(("INCR", "n"))
        assert offering._flusher is not None
        await offering._flusher
        wire.server.connected = True
        assert offering.trouble is None, "nothing waits, so nobody would find out that Redis is back"
        offering.offer(("INCR", "n"))
        assert await offering.send(("GET", "n")) == b"1"

        absence.begin(wire, "away")
        offering.offer(("INCR", "n"))
        assert await offering.send(("GET", "n")) == b"1", "another batcher has found that Redis is away"

    on_wire(scene)


def test_a_worker_that_beats_often_looks_as_often_whether_redis_is_back() -> None:
    async def scene(wire: Wire) -> None:
        wire.server.connected = False
        wire.on_pause = lambda: setattr(wire.server, "connected", len(wire.pauses) >= 5)
        assert await wire.send(("INCR", "n")) == 1
        assert wire.pauses == [0.05, 0.1, 0.2, 0.3, 0.3]

    on_wire(scene, away_most_s=0.3)


def test_a_redis_that_is_away_while_a_script_is_loaded_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(wire: Wire) -> None:
        open_pipeline, fails = wire.client.pipeline, [None, RedisConnectionError("gone")]

        def flaky(**options: Any) -> Any:
            """The second one is that of the scripts."""
            pipeline = open_pipeline(**options)
            if fails and (error := fails.pop(0)) is not None:
                monkeypatch.setattr(pipeline, "execute", AsyncMock(side_effect=error))
            return pipeline

        monkeypatch.setattr(wire.client, "pipeline", flaky)

        assert await gather(wire, resign(), ("INCR", "n")) == [0, 2], "the whole batch was sent again"

    on_wire(scene)


@pytest.mark.parametrize(
    "refusal",
    [
        ReadOnlyError("You can't write against a read only replica."),
        ResponseError("MISCONF Errors writing to the AOF file"),
        ResponseError("BUSY Redis is busy running a script"),
        ResponseError("NOREPLICAS Not enough good replicas to write."),
        ResponseError("Script killed by user with FUNCTION KILL. script: on @user_function:2."),
    ],
    ids=lambda error: str(error).split()[0],
)
def test_a_server_that_cannot_write_now_is_asked_again_and_the_others_are_answered(
    refusal: RedisError,
) -> None:
    async def scene(wire: Wire) -> None:
        def refuse_twice(replies: list[Any]) -> list[Any]:
            match len(wire.trips):
                case 1:
                    return [replies[0], refusal, replies[2]]
                case 2:
                    return [refusal]
                case _:
                    return replies

        wire.twist = refuse_twice
        replies = await gather(wire, ("SET", "a", "1"), ("SET", "b", "2"), ("SET", "c", "3"))

        assert replies == [True, True, True]
        assert wire.trips == [3, 1, 1]
        assert wire.pauses == [0.05, 0.1]

    on_wire(scene)


def test_a_defect_reaches_whoever_waits_and_the_batcher_goes_on() -> None:
    async def scene(wire: Wire) -> None:
        def broken(replies: list[Any]) -> list[Any]:
            raise ZeroDivisionError

        wire.twist = broken
        with capture_logs() as logs:
            failed = await gather(wire, ("INCR", "n"), ("INCR", "n"))
        wire.twist = lambda replies: replies

        assert [type(error) for error in failed] == [ZeroDivisionError] * 2
        assert [line["event"] for line in logs] == ["batch_failed"]
        assert await wire.send(("PING",)) is True

    on_wire(scene)


def test_a_cancelled_caller_does_not_disturb_others() -> None:
    async def scene(wire: Wire) -> None:
        tasks = [asyncio.create_task(wire.send(("INCR", "n"))) for _ in range(3)]

        def lose_interest(replies: list[Any]) -> list[Any]:
            tasks[1].cancel()
            return replies

        wire.twist = lose_interest

        replies = await asyncio.gather(*tasks, return_exceptions=True)

        assert (replies[0], replies[2]) == (1, 3)
        assert isinstance(replies[1], asyncio.CancelledError)

    on_wire(scene)


def test_once_given_up_a_redis_that_is_away_fails_what_waits() -> None:
    async def scene(wire: Wire) -> None:
        wire.server.connected = False
        wire.on_pause = wire.give_up

        waiting = await gather(wire, ("INCR", "n"), ("INCR", "n"))
        later = await gather(wire, ("INCR", "n"))

        assert [type(error) for error in [*waiting, *later]] == [RedisConnectionError] * 3

    on_wire(scene)


def test_giving_up_does_not_stop_what_redis_still_answers() -> None:
    async def scene(wire: Wire) -> None:
        wire.give_up()

        assert await wire.send(("INCR", "n")) == 1

    on_wire(scene)


def test_an_offer_is_sent_in_order_and_nobody_waits_for_it() -> None:
    async def scene(wire: Wire) -> None:
        for n in range(5):
            wire.offer(("RPUSH", "list", str(n)))

        assert await wire.send(("LRANGE", "list", 0, -1)) == [b"0", b"1", b"2", b"3", b"4"]
        assert wire.trips == [6]

    on_wire(scene)


def test_offers_are_dropped_while_redis_is_away() -> None:
    async def scene(wire: Wire) -> None:
        wire.server.connected = False

        def offer_and_come_back() -> None:
            wire.offer(("RPUSH", "list", "during"))
            wire.server.connected = True

        wire.on_pause = offer_and_come_back
        wire.offer(("RPUSH", "list", "before"))
        await wire.send(("PING",))

        assert await wire.send(("LRANGE", "list", 0, -1)) == []

    on_wire(scene)


def test_offers_are_dropped_where_too_much_is_waiting() -> None:
    async def scene(wire: Wire) -> None:
        for _ in range(2 * MOST_OFFERED):
            wire.offer(("INCR", "n"))

        assert await wire.send(("GET", "n")) == str(MOST_OFFERED).encode()

    on_wire(scene)


def test_an_offer_that_the_server_refuses_is_no_error() -> None:
    async def scene(wire: Wire) -> None:
        await wire.send(("SET", "text", "x"))
        wire.offer(("INCR", "text"))

        assert await wire.send(("GET", "text")) == b"x"

    on_wire(scene)
