"""Plays one schedule on a deployment, and collects its history."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TypeAlias

from redis.exceptions import RedisError

from fairlane.core.errors import FairlaneError
from tests.faults import (  # noqa: F401 - they register their faults
    client_faults,
    message_faults,
    network_faults,
    process_faults,
    provider_faults,
    redis_faults,
    run_faults,
)
from tests.faults.checker import SETTLED_WITHIN_S
from tests.faults.deployment import PROVIDER, Deployment
from tests.faults.history import History, Span
from tests.faults.leftovers import leftovers
from tests.faults.runs import Watcher, Workload
from tests.faults.schedule import Schedule, Timed, act_on_same
from tests.faults.stage import FAULTS, Stage
from tests.support.wait import wait_until

QUIET_S = 12.0
"""Leases of lost attempts have lapsed by then, and stale messages are dropped."""

LOOK_S = 300.0
"""A look at all that Redis holds may take so long, with a run of many rows."""

UnderWay: TypeAlias = tuple[float, Timed, ExitStack, tuple[str, ...], float]
"""A fault being played: until when, which, what ends it, the processes that it hit, and its begin."""


class Player:
    """Plays one schedule."""

    def __init__(self, deployment: Deployment, schedule: Schedule, workload: Workload) -> None:
        self._deployment, self._schedule, self._workload = deployment, schedule, workload
        rng = random.Random(f"play/{schedule.seed}")
        self._stage = Stage(deployment, self._workload, rng, time.monotonic())
        self._spans: list[Span] = []
        self._unplayed: list[str] = []

    def play(self) -> History:
        """Submit the runs, play every fault, wait until all is done and quiet, and collect."""
        self._workload.submit()
        self._stage.since = time.monotonic()
        with Watcher(self._workload, self._stage.since) as self._watcher:
            return self._play()

    def _play(self) -> History:
        self._play_faults()
        self._heal()
        self._wait(self._stage.now + SETTLED_WITHIN_S, self._watcher.all_done)
        took_s = self._stage.now
        try:
            self._deployment.wait_whole()
        except AssertionError as error:
            self._deployment.died.append(f"the deployment is not whole: {error}")
        found: dict[str, str] = {}

        def is_quiet() -> bool:
            nonlocal found
            with suppress(RedisError):
                found = leftovers(self._deployment.redis, self._deployment.keys)
                return not found
            return False

        self._wait(self._stage.now + QUIET_S, is_quiet)
        return self._collected(found, took_s)

    def _play_faults(self) -> None:
        under_way = list[UnderWay]()
        coming = list(self._schedule.faults)
        while coming or under_way:
            first_end = min((until for until, *_ in under_way), default=float("inf"))
            # What was drawn apart may overlap where a fault is slow to begin: then the next one waits.
            waits = coming and any(act_on_same(coming[0], timed) for _, timed, *_ in under_way)
            if coming and coming[0].at_s <= first_end and not waits:
                timed = coming.pop(0)
                self._until(timed.at_s)
                self._begin(timed, under_way)
            else:
                entry = min(under_way, key=lambda entry: entry[0])
                self._until(entry[0])
                under_way.remove(entry)
                self._end(*entry[1:])

    def _begin(self, timed: Timed, under_way: list[UnderWay]) -> None:
        playing, begin = ExitStack(), self._stage.now
        try:
            hit = playing.enter_context(FAULTS[timed.name](self._stage, timed))
        except (FairlaneError, RedisError, OSError, AssertionError) as error:
            self._unplayed.append(f"{timed}: {type(error).__name__}: {error}")
            self._spans.append(Span(timed.name, (timed.target,), begin, self._stage.now))
            return
        under_way.append((self._stage.now + timed.seconds, timed, playing, hit, begin))

    def _end(self, timed: Timed, playing: ExitStack, hit: tuple[str, ...], begin: float) -> None:
        try:
            playing.close()
        except (FairlaneError, RedisError, OSError, AssertionError) as error:
            self._unplayed.append(f"end of {timed}: {type(error).__name__}: {error}")
        self._spans.append(Span(timed.name, hit, begin, self._stage.now))

    def _until(self, moment: float) -> None:
        self._wait(moment, lambda: False)

    def _wait(self, until: float, is_over: Callable[[], bool]) -> None:
        def look() -> bool:
            self._deployment.mind()
            return self._stage.now >= until or is_over()

        wait_until(look, timeout=until - self._stage.now + LOOK_S, interval=0.05)

    def _heal(self) -> None:
        """Whatever a fault could not undo by itself is undone now."""
        deployment = self._deployment
        with suppress(FairlaneError, AssertionError):
            deployment.servers.heal()
        deployment.proxies.each([PROVIDER], lambda proxy: proxy.mend())
        for name in list(deployment.down):
            deployment.revive(name)
        self._workload.close()
        with suppress(FairlaneError):
            self._workload.resume_again()
        self._stage.finish()

    def _collected(self, found: dict[str, str], took_s: float) -> History:
        calls, stalled_s = self._deployment.provider.calls_since(self._stage.since - 1.0)
        return History(
            self._schedule,
            calls=tuple(call.after(self._stage.since) for call in calls),
            runs=self._workload.read(),
            faults=tuple(self._spans),
            limits={model: tuple(known) for model, known in self._workload.limits.items()},
            logs=tuple(self._deployment.logged()),
            left=found,
            died=tuple(self._deployment.died),
            stalled_s=stalled_s,
            unplayed=tuple(self._unplayed),
            took_s=took_s,
        )


def play(deployment: Deployment, schedule: Schedule) -> History:
    """Play a schedule on a whole deployment, which is whole again afterwards."""
    deployment.begin()
    return Player(deployment, schedule, Workload(deployment)).play()
