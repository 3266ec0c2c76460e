"""A client of a deployment in which a test plays scheduler and workers, also while the client waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from redis import Redis

from fairlane.client.client import Client
from fairlane.config.sections import RedisSettings
from fairlane.config.settings import Settings
from fairlane.model.ending import Completion, ReadyJob
from fairlane.model.job import Feedback, JobState
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import Plan, RunRef, RunSpec
from fairlane.model.tokens import Usage
from fairlane.store.write.runs.inbox import Inbox, Request
from tests.support.deployment import Deployment, entry

TASKS, JUDGES = "sim:fast", "sim:judge"


class Stage:
    """The client's ``waiter``: each wait advances the clock and plays the next scene."""

    def __init__(self, redis: Redis, team: str = "search") -> None:
        self.deployment = Deployment(redis)
        self.redis, self.keys, self.clock = redis, self.deployment.keys, self.deployment.clock
        self.deployment.lane(TASKS)
        self.deployment.lane(JUDGES)
        self.waits: list[float] = []
        self._scenes: Iterator[Callable[[], object]] = iter(())
        self.client = self.client_of(team)

    def client_of(self, team: str) -> Client:
        return self.client_through(self.redis, team)

    def client_through(self, redis: Redis, team: str) -> Client:
        """A client with its own connection."""
        settings = Settings(redis=RedisSettings(deployment="test"), team=team)
        return Client(settings=settings, redis=redis, clock=self.clock, waiter=self)

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(seconds)
        next(self._scenes, lambda: None)()

    def then(self, *scenes: Callable[[], object]) -> None:
        """The scenes to play, in order, while the client waits."""
        self._scenes = iter(scenes)

    def admit(self) -> None:
        """Handle all inboxes as the scheduler does, and feed all items."""
        inbox = Inbox(self.redis, self.keys)
        for team in inbox.search(0)[1]:
            requests = list(inbox.peek(team))
            for request in requests:
                if request is not None:
                    ref = RunRef(team, request.run)
                    self._act(ref, request)
            inbox.drop(team, len(requests))
            inbox.remember(team)

    def _act(self, ref: RunRef, request: Request) -> None:
        d = self.deployment
        if request.op == "cancel":
            d.cancel(ref)
        elif request.op == "pause":
            d.runs.pause(ref, request.by, d.epoch, d.now_ms)
        elif request.op == "resume":
            d.runs.resume(ref, request.by, d.epoch, d.now_ms)
        else:
            self._admit(ref)

    def _admit(self, ref: RunRef) -> None:
        text = self.deployment.runs.spec_text(ref)
        if text is None:
            return
        spec = RunSpec.model_validate_json(text)
        plan = Plan(spec=spec, eval_lanes=(JUDGES,) * len(spec.evals))
        self.deployment.runs.admit(plan, self.deployment.epoch, self.deployment.now_ms)
        self.deployment.feed(ref, spec.items, TASKS)

    def refuse(self, run: str, reason: str, team: str = "search") -> None:
        ref, now = RunRef(team, run), self.deployment.now_ms
        self.deployment.runs.refuse(ref, reason, now, self.deployment.epoch, now)

    def answer(self, run: str, count: int = 1, *, last_first: bool = False, **result: Any) -> list[int]:
        """Start and finish the next ``count`` tasks of a run. Returns their items, in that order."""
        ref = RunRef(self.client.team, run)
        spec = self.spec(run)
        started = self.deployment.start(ref, count, TASKS)
        for attempt in reversed(started) if last_first else started:
            item = attempt.job // spec.steps
            task = replace(
                TaskResult(JobState.SUCCEEDED, f"answer {item}", usage=Usage(10, 5), attempts=1), **result
            )
            follow: Sequence[ReadyJob] = [
                ReadyJob(entry(attempt.job + step, 10, step), JUDGES) for step in range(1, spec.steps)
            ]
            self._end(attempt, task.state, task.to_json(), follow)
        items = [attempt.job // spec.steps for attempt in started]
        return items[::-1] if last_first else items

    def judge(self, run: str, count: int, score: float = 1.0) -> None:
        """Start and finish the next ``count`` judge jobs of a run."""
        for attempt in self.deployment.start(RunRef(self.client.team, run), count, JUDGES):
            self._end(attempt, JobState.SUCCEEDED, JudgeResult(JobState.SUCCEEDED, score).to_json())

    def spec(self, run: str) -> RunSpec:
        plan = self.deployment.runs.plan(RunRef(self.client.team, run))
        assert plan is not None, f"{run} has not been admitted"
        return plan.spec

    def _end(self, attempt: Any, state: JobState, payload: str, follow: Sequence[ReadyJob] = ()) -> None:
        call = self.deployment.attempts.finish(
            attempt, "w1", Feedback("ok"), Completion(state, payload, tuple(follow)), self.deployment.now_ms
        )
        assert call.run(self.redis) is not None, f"{attempt.id} was late"
