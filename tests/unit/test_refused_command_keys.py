"""A command's key that is refused: the command runs again soon, once for all calls; a new key is reported."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.config.connections.connection import Connection
from fairlane.config.loader import load_secrets, load_settings
from fairlane.core.clock import ManualClock
from fairlane.model.outcome import Aborted, AccessDenied, Outcome
from fairlane_workers.providers.auth.key_sources import KeyFile, KeySource, ReadKey
from fairlane_workers.providers.auth.rotating_key import (
    FAILED_MS,
    MOST_UNPROVEN,
    RotatingHeader,
    RotatingKey,
)
from fairlane_workers.providers.http.provider import HttpProvider
from fairlane_workers.providers.registry import build_provider
from fairlane_workers.upkeep.credentials import CredentialReports
from tests.support.provider_calls import ask
from tests.support.scripted_server import http, scripted_server
from tests.support.wires.openai_chat import OpenAIChatWire
from tests.support.worker_parts import WorkerParts, on_loop

WIRE = OpenAIChatWire()


class Vault(KeySource):
    """A command that prints the key which a test puts there, and remembers when it ran."""

    def __init__(self, clock: ManualClock, key: str = "key-1", good_s: float = 300.0) -> None:
        self.clock, self.key, self.good_s = clock, key, good_s
        self.runs: list[int] = []

    def read(self, *, anew: bool) -> ReadKey | None:
        self.runs.append(self.clock.monotonic_ms())
        return ReadKey(self.key, self.good_s)


class World:
    """A key of a command on a clock that a pause moves on."""

    def __init__(self, **vault: Any) -> None:
        self.clock = ManualClock(1)
        self.vault = Vault(self.clock, **vault)
        self.key = RotatingKey("c", self.vault, "command:x", self.clock, self.pause)
        self.at_pause: str | None = None

    async def pause(self, seconds: float) -> None:
        """Put the next key there, if a test says so, and move the clock on."""
        if self.at_pause is not None:
            self.vault.key = self.at_pause
        self.clock.advance(seconds)

    async def wait(self, seconds: int) -> None:
        """Let seconds pass, with a look in each."""
        for _ in range(seconds):
            self.clock.advance(1)
            await self.key.look()


def test_a_key_that_is_replaced_right_after_the_commands_run_costs_calls_nothing() -> None:
    async def scenario() -> tuple[list[bool], str, int]:
        world = World()
        await world.key.current()
        world.clock.advance(1)
        world.at_pause = "key-2"
        found = await asyncio.gather(*(world.key.refused(1) for _ in range(20)))
        return found, await world.key.current(), len(world.vault.runs)

    assert asyncio.run(scenario()) == ([True] * 20, "key-2", 2)


def test_where_the_refused_key_stands_all_calls_wait_for_one_run_and_later_ones_for_none() -> None:
    async def scenario() -> tuple[list[bool], bool, list[int]]:
        world = World()
        await world.key.current()
        world.clock.advance(1)
        found = await asyncio.gather(*(world.key.refused(1) for _ in range(20)))
        world.clock.advance(1)
        return found, await world.key.refused(1), world.vault.runs

    found, later, runs = asyncio.run(scenario())
    assert (found, later) == ([False] * 20, False)
    assert [run - runs[0] for run in runs] == [0, FAILED_MS]


def test_a_call_that_is_cancelled_while_it_waits_stops_the_run_for_no_other() -> None:
    async def scenario() -> tuple[bool, bool]:
        world = World()
        await world.key.current()
        world.at_pause = "key-2"
        first, second = (asyncio.create_task(world.key.refused(1)) for _ in range(2))
        await asyncio.wait({first, second}, timeout=0)
        first.cancel()
        return await second, first.cancelled()

    assert asyncio.run(scenario()) == (True, True)


def test_while_its_key_is_refused_a_command_runs_again_soon_and_then_ever_more_rarely() -> None:
    async def scenario() -> list[int]:
        world = World(good_s=300.0)
        await world.key.current()
        assert not await world.key.refused(1)
        await world.wait(1200)
        return [round((run - world.vault.runs[1]) / 1000) for run in world.vault.runs[1:]]

    assert asyncio.run(scenario()) == [0, 5, 15, 35, 75, 155, 315, 615, 915]


def test_a_key_that_replaces_a_denied_one_is_counted_and_others_are_not() -> None:
    async def scenario() -> list[int]:
        world = World(good_s=10.0)
        counts = []
        await world.key.current()
        world.key.accepted(1)
        world.vault.key = "key-2"
        await world.wait(11)
        counts.append(world.key.renewals)  # it ran out, nobody refused it
        assert not await world.key.refused(2)
        counts.append(world.key.renewals)
        world.vault.key = "key-3"
        await world.wait(6)
        assert await world.key.current() == "key-3"
        return [*counts, world.key.renewals]

    assert asyncio.run(scenario()) == [0, 0, 1]


@given(
    st.lists(st.sampled_from(["refused", "rotate", "accept", "second", "minute"]), max_size=60),
    st.booleans(),
    st.booleans(),
)
def test_every_key_after_a_denial_is_counted_and_no_command_runs_twice_within_five_seconds(
    steps: list[str], differs: bool, changes_while_waiting: bool
) -> None:
    async def scenario() -> None:
        world, made = World(), 1
        await world.key.current()
        denied = 0  # number of the last key whose refusal was an answer
        for step in steps:
            mark, before = world.key.number, world.key.renewals
            if step == "rotate" or differs:
                made += 1
                world.vault.key = f"key-{made}"
            world.at_pause = f"key-{made}-later" if changes_while_waiting else None
            match step:
                case "refused":
                    if not await world.key.refused(mark):
                        denied = max(denied, mark)
                case "accept":
                    world.key.accepted(mark)
                    denied = 0 if mark == world.key.number else denied
                case "second":
                    await world.wait(1)
                case "minute":
                    await world.wait(60)
            assert world.key.renewals >= before
            if denied and world.key.number > denied and mark == denied:
                assert world.key.renewals > before
        runs = world.vault.runs
        assert all(later - run >= FAILED_MS for run, later in pairwise(runs))

    asyncio.run(scenario())


@given(st.integers(1, 6), st.booleans())
def test_a_command_that_prints_wrong_keys_without_end_probes_ever_more_rarely_and_a_good_one_is_found(
    wrong: int, accepted: bool
) -> None:
    async def scenario() -> None:
        world = World()
        await world.key.current()
        if accepted:
            world.key.accepted(1)
        reports = 0
        for number in range(wrong + MOST_UNPROVEN + 2):  # a probe at each renewal, which is refused
            world.vault.key = world.at_pause = f"wrong-{number}"
            if not await world.key.refused(world.key.number):
                before = world.key.renewals
                world.vault.key = f"also-wrong-{number}"
                await world.wait(400)
                reports += world.key.renewals > before
        assert reports
        assert all(later - run >= FAILED_MS for run, later in pairwise(world.vault.runs))
        assert len(world.vault.runs) <= 3 * MOST_UNPROVEN + 4 * (wrong + MOST_UNPROVEN + 2)

    asyncio.run(scenario())


def test_a_call_s_deadline_does_not_count_the_wait_for_a_command() -> None:
    """The server has answered in time: such a call is denied or free, never late."""

    async def scenario(becomes: str) -> Outcome:
        denied = [http(401, WIRE.error("invalid_api_key", "Incorrect API key"))]
        async with scripted_server([denied]) as server:
            settings = {**WIRE.settings(server.url), "api_key_env": None, "api_key_command": ["true"]}
            key = RotatingKey("c", Vault(ManualClock()), "command:x", ManualClock(), slow)
            source: Any = key._source
            made = build_provider(
                "c", Connection.model_validate(settings), None, clock=ManualClock(), rotating=key
            )
            assert isinstance(made, HttpProvider)
            assert isinstance(made._authorizer, RotatingHeader)
            await key.current()
            source.key = becomes
            outcome = await made.call(ask(timeout_s=0.5))
            await made.aclose()
            return outcome

    async def slow(seconds: float) -> None:
        await asyncio.wait({asyncio.get_running_loop().create_future()}, timeout=0.8)

    assert isinstance(asyncio.run(scenario("key-1")), AccessDenied)
    assert isinstance(asyncio.run(scenario("key-2")), Aborted)


class Hanging(KeySource):
    """A command that does not end before a test lets it."""

    def __init__(self) -> None:
        self.let = threading.Event()

    def read(self, *, anew: bool) -> ReadKey | None:
        self.let.wait(30)
        return ReadKey("late", 300.0)

    def close(self) -> None:
        self.let.set()


@pytest.mark.parametrize("most_s", [0.0, 0.3])
def test_a_command_that_hangs_holds_back_no_other_connection_s_report(tmp_path: Any, most_s: float) -> None:
    file, clock = tmp_path / "key", ManualClock(1)
    file.write_text("sk-of-the-file")
    settings = load_settings(
        environ={}, connections={"v": {**WIRE.settings("http://127.0.0.1:9"), "api_key_env": "KEY_OF_V"}}
    )

    async def scene(parts: WorkerParts) -> None:
        hanging = Hanging()
        keys = {
            "slow": RotatingKey("slow", hanging, "command:x", clock),
            "f": RotatingKey("f", KeyFile(file), "file:/k", clock),
        }
        reported = list[Mapping[str, str]]()
        held = load_secrets(settings, {"KEY_OF_V": "sk-of-the-variable"})
        reports = CredentialReports(parts.batcher, parts.keys, held, keys, reported.append)
        await reports.look(most_s)
        await keys["f"].look()
        await reports.look(most_s)
        assert set(reported[-1]) == {"v", "f"}
        file.write_text("sk-another-one")
        clock.advance(2)
        await keys["f"].look()
        await reports.look(most_s)
        assert set(reported[-1]) == {"v", "f"}
        assert reported[-1]["f"] != reported[0].get("f")
        hanging.let.set()
        await keys["slow"].look()
        await reports.look(most_s)
        assert set(reported[-1]) == {"v", "f", "slow"}
        await reports.aclose()

    on_loop(scene)


def test_a_renewed_key_is_reported_with_the_next_heartbeat(tmp_path: Any) -> None:
    async def scene(parts: WorkerParts) -> None:
        world = World()
        reports = CredentialReports(
            parts.batcher,
            parts.keys,
            load_secrets(load_settings(environ={}), {}),
            {"c": world.key},
            parts.heartbeat.holding,
            renewed=parts.heartbeat.renewed,
        )
        await reports.look()
        assert not await world.key.refused(1)
        world.vault.key = "key-2"
        world.clock.advance(6)
        await reports.look()
        await parts.heartbeat.beat()
        (beat,) = parts.scheduler.workers.beats(parts.scheduler.redis)
        assert beat.info.renewals == {"c": 1}
        assert len(beat.info.credentials) == 1
        await reports.aclose()

    on_loop(scene)
