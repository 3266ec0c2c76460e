"""The four runs that every schedule disturbs: two teams, a judge, and every kind of bound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from redis.exceptions import RedisError

from fairlane import Client, RetryPolicy, Run, RunState, RunStatus, StoreUnavailable, llm_judge
from fairlane.core.errors import FairlaneError, RunLost, RunNotFound
from tests.faults.checker import JUDGED
from tests.faults.deployment import Deployment
from tests.faults.history import LOST, Entry, Limit, RunSeen

EXACT_PER_S, JUDGE_PER_S, SERIAL_PER_S, UNSTATED_PER_S = 15, 16, 10, 12
MANY_PER_S = 300
BURST_S = 0.5
BOUND, AHEAD = 5, 40
TALK = 4
"""The rows of a session."""

LOOK_S = 0.2
CALL_TIMEOUT_S = 6.0
RETRY = RetryPolicy(max_attempts=8, initial_delay=0.2, max_delay=1.0)
OUTAGES: dict[str, Any] = {"outage_delay": 1.0, "outage_growth": 1.5, "outage_longest_delay": 3.0}
"""Probes come soon, so that a schedule with an outage stays short."""


@dataclass(slots=True)
class Watched:
    """A run that is being played, what it must end as, and when it was paused (seconds)."""

    run: Run
    seen: RunSeen
    paused: list[tuple[float, float]] = field(default_factory=list)
    submitted_s: float = field(default_factory=time.monotonic)
    resumed_s: float | None = None
    resumes_again: bool = False

    def resume(self) -> None:
        """Resume it, and note when."""
        self.run.resume()
        self.resumed_s = time.monotonic()

    def forget(self, seconds: float, now: float) -> None:
        """Redis has lost what it confirmed in the last ``seconds``. ``now``: seconds since the start."""
        begin = time.monotonic() - seconds
        if self.submitted_s >= begin:
            self.seen = replace(self.seen, may_be_lost=True)
        if self.seen.done_s is not None and self.seen.done_s >= now - seconds:
            self.seen = replace(self.seen, state="", done_s=None, ended_early_s=None)  # its end is lost, too
        self.resumes_again |= self.resumed_s is not None and self.resumed_s >= begin

    def look(self, since: float) -> bool:
        """Whether it has ended; the first time that it has is noted."""
        if self.seen.done_s is None and (status := self._status(since)) is not None:
            counts = {str(state): count for state, count in status.by_state.items() if count}
            done_s = time.monotonic() - since if status.state.finished else None
            self.seen = replace(
                self.seen,
                state=str(status.state),
                by_state=counts,
                jobs=status.jobs,
                jobs_done=status.jobs_done,
                done_s=done_s,
                ended_early_s=None if status.state is RunState.COMPLETED else done_s,
            )
        return self.seen.done_s is not None

    def _status(self, since: float) -> RunStatus | None:
        try:
            return self.run.status()
        except (StoreUnavailable, RedisError):
            return None
        except (RunNotFound, RunLost) as error:
            self.seen = replace(self.seen, error=f"{type(error).__name__}: {error}")
            if self.seen.may_be_lost:
                self.seen = replace(self.seen, state=LOST, done_s=time.monotonic() - since)
            return None

    def read(self) -> RunSeen:
        """What its team reads in the end."""
        if self.seen.state == LOST:
            return self.seen
        try:
            if not self.run.status().state.finished:
                return replace(self.seen, error="it is not over, so that its records were not read")
            records = tuple(
                Entry(
                    record.item,
                    str(record.state),
                    record.output,
                    tuple(record.scores.values()),
                    record.attempts,
                    record.error,
                )
                for record in self.run.results()
            )
            sessions = tuple(
                (session.items[0] // TALK, tuple(session.scores.values())) for session in self.run.sessions()
            )
        except FairlaneError as error:
            return replace(self.seen, error=f"{type(error).__name__}: {error}")
        return replace(self.seen, records=records, paused=tuple(self.paused), sessions=sessions)


class Workload:
    """The runs of one schedule, on lanes that no other schedule uses."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment, self.number = deployment, deployment.schedules
        self.watched: dict[str, Watched] = {}
        self.limits: dict[str, list[Limit]] = {}
        self.clients: dict[str, Client] = {}
        for letter, per_second in (("a", EXACT_PER_S), ("b", JUDGE_PER_S), ("c", SERIAL_PER_S)):
            judging = letter == "b"
            self._model(letter, latency_ms=80 if judging else 250, judging=judging)
            self.limit(letter, per_second, lambda: 0.0)
        self._model("d", latency_ms=150, requests_per_minute=60 * UNSTATED_PER_S)
        deployment.lanes.limit(self.lane("d"), OUTAGES)

    def model(self, letter: str) -> str:
        return f"{letter}{self.number}"

    def lane(self, letter: str) -> str:
        return f"sim:{self.model(letter)}"

    @property
    def models(self) -> list[str]:
        return [self.model(letter) for letter in "abcd"]

    def limit(self, letter: str, per_second: float, clock: Callable[[], float]) -> None:
        """State a lane's rate. A higher one may hold from the command on, a lower one must after it."""
        begin = clock()
        stated: dict[str, Any] = {"requests_per_minute": 60 * per_second, "burst_seconds": BURST_S}
        exact = {"exact": True} if letter == "a" else {}
        self.deployment.lanes.limit(self.lane(letter), {**stated, **exact, **OUTAGES})
        known = self.limits.setdefault(self.model(letter), [])
        is_lower = bool(known) and per_second < known[-1].per_second
        known.append(Limit(clock() if is_lower else begin, per_second, per_second * BURST_S))

    def submit(self) -> None:
        """Submit all four."""
        judge = llm_judge(self.lane("b"), JUDGED + "{{ output }}", {"yes": 1})
        self._submit("judged", "red", "a", 110, {"judges": 1}, evaluators=[judge], ahead=AHEAD)
        self._submit("bounded", "blue", "a", 70, {}, max_concurrent=BOUND)
        self._submit("serial", "blue", "c", 24, {}, run_serially=True)
        self._submit("unstated", "red", "d", 90, {})

    def submit_many(self, rows: int) -> None:
        """A run that takes minutes, on a fast lane of its own."""
        self._model("e", latency_ms=50)
        self.limit("e", MANY_PER_S, lambda: 0.0)
        self._submit("many", "red", "e", rows, {})

    def submit_another(
        self, name: str, team: str, letter: str, rows: int, expected: Mapping[str, Any], **options: Any
    ) -> Watched:
        """One more run; ``expected`` are fields of `RunSeen`, ``options`` those of `Client.submit`."""
        return self._submit(name, team, letter, rows, expected, **options)

    def continue_run(self, old: Watched) -> Watched:
        """A run that completes what another one, which has ended, did not. Raises `FairlaneError`."""
        run = next(client for client in self.clients.values() if client.team == old.run.team).continue_run(
            old.run.id
        )
        name = f"{old.seen.name} again"
        seen = RunSeen(name, run.id, run.team, old.seen.questions, max_attempts=RETRY.max_attempts)
        self.watched[name] = Watched(run, seen)
        return self.watched[name]

    def questions(self, name: str, rows: int) -> tuple[str, ...]:
        """The prompts of a run of this name."""
        return tuple(f"{name} {self.number} question {n}" for n in range(rows))

    def _submit(
        self, name: str, team: str, letter: str, rows: int, expected: Mapping[str, Any], **options: Any
    ) -> Watched:
        client = self.clients.setdefault(team, self.deployment.client_of(team))
        run = client.submit(
            [{"n": n, "talk": n // TALK} for n in range(rows)],
            f"{name} {self.number} question {{{{ n }}}}",
            model=self.lane(letter),
            timeout=CALL_TIMEOUT_S,
            retry=RETRY,
            name=name,
            **options,
        )
        seen = RunSeen(
            name,
            run.id,
            team,
            self.questions(name, rows),
            most=options.get("max_concurrent"),
            serial=bool(options.get("run_serially")),
            ahead=options.get("ahead"),
            budget=options.get("budget_tokens"),
            max_attempts=RETRY.max_attempts,
            **expected,
        )
        self.watched[name] = Watched(run, seen)
        return self.watched[name]

    def all_done(self, since: float) -> bool:
        """Whether every run has ended."""
        ended = [watched.look(since) for watched in list(self.watched.values())]
        return all(ended)

    def read(self) -> tuple[RunSeen, ...]:
        """All runs as their teams see them in the end."""
        return tuple(watched.read() for watched in self.watched.values())

    def forget(self, seconds: float, now: float) -> None:
        """Redis has lost what it confirmed in the last ``seconds``. ``now``: seconds since the start."""
        for watched in self.watched.values():
            watched.forget(seconds, now)

    def resume_again(self) -> None:
        """Resume runs whose first request Redis may have lost. Raises `FairlaneError`."""
        for watched in self.watched.values():
            if watched.resumes_again and watched.seen.done_s is None and watched.seen.state != LOST:
                watched.run.resume()

    def close(self) -> None:
        """Restore every model."""
        with suppress(KeyError):
            for model in self.models:
                self.deployment.provider.change_model(model, faults={})

    def _model(self, letter: str, *, judging: bool = False, **behaviour: Any) -> None:
        output = {"output": "fixed", "fixed_text": "yes"} if judging else {"output": "echo"}
        self.deployment.provider.add_model(self.model(letter), **output, **behaviour)


class Watcher:
    """Looks at the runs in a thread of its own, for a look may take long while Redis is away."""

    def __init__(self, workload: Workload, since: float) -> None:
        self._workload, self._since = workload, since
        self._over, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def all_done(self) -> bool:
        """Whether every run has ended."""
        return self._done.is_set()

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            ended = self._workload.all_done(self._since)
            self._done.set() if ended else self._done.clear()
