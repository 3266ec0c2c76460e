"""Generated sequences of what users, operators and providers do, beside faults.

``python -m tests.faults.generated SEED …`` plays these.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from redis.exceptions import RedisError

from fairlane import JobState, RunState, contains, llm_judge
from fairlane.core.errors import FairlaneError
from fairlane.store.write.budgets import Budgets
from fairlane.store.write.registry import Registry, TeamRecord
from tests.faults.checker import CHECKS, JUDGED, Violation
from tests.faults.deployment import Deployment, deployed
from tests.faults.history import History
from tests.faults.kinds import KINDS, ONE_SERVER, playable
from tests.faults.play import Player
from tests.faults.runs import Watched, Workload
from tests.faults.schedule import Schedule, draw
from tests.support.wait import wait_until

TEAMS, ACTS, ACTING_S, MOST_FAULTS = ("red", "blue"), 24, 5.0, 3
PLENTY = 10**9
MOODS: dict[str, dict[str, Any]] = {
    "well": {},
    "limited": {"error_429": 0.5},
    "overloaded": {"error_503": 0.7},
    "broken": {"error_500": 0.3, "error_502": 0.3},
    "resets": {"reset": 0.4},
    "malformed": {"malformed": 0.3},
    "cut": {"cut_stream": 0.3},
    "hangs": {"hang": 0.2},
}
"""Of a model's provider, as shares of its requests."""

FAULTS = [
    name
    for name in playable(ONE_SERVER)
    if KINDS[name].uses in ("", "redis", "workers", "schedulers") and name not in ("drain", "upgrade")
    if not KINDS[name].forgets
]
"""Faults that concern no run of another workload, and after which Redis knows what it has confirmed."""

PROMISES = ("paid_once", "arrivals", "concurrency", "fences", "left", "processes", "defects", "finished")


class Generated(Workload):
    """Two teams' runs of many kinds; people control them, and operators change lanes, shares and budgets."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        super().__init__(deployment)
        self._rng, self._acting = random.Random(f"generated/{seed}"), threading.Thread(target=self._act)
        self.asked_to_end, self._begun, self.defects = set[str](), 0, list[Violation]()
        self.budgets = Budgets(deployment.redis, deployment.keys)
        for team in TEAMS:
            self.budgets.set(team, "month", {"requests": PLENTY})
        self._used_before = self._used()

    def _kinds(self) -> dict[str, dict[str, Any]]:
        judge = llm_judge(self.lane("b"), JUDGED + "{{ output }}", {"yes": 1})
        return {
            "plain": {},
            "judged": {"evaluators": [judge]},
            "ahead": {"evaluators": [judge], "ahead": 3},
            "bounded": {"max_concurrent": 2},
            "serial": {"run_serially": True},
            "urgent": {"priority": 50},
            "delayed": {"start_in": 2.0},
            "scored": {"evaluators": [contains("n")]},
            "dated": {"max_duration": 5.0},
        }

    def submit(self) -> None:
        """Begin some runs, and the acts."""
        for _ in range(3):
            self.begin_run()
        self._acting.start()

    def begin_run(self) -> None:
        rng, kinds, number = self._rng, self._kinds(), self._begun
        self._begun += 1
        kind = rng.choice(sorted(kinds))
        rows = rng.choice((1, 8, 10) if kind == "serial" else (1, 8, 30, 50))
        self.submit_another(
            f"{kind}-{number}", rng.choice(TEAMS), rng.choice("aacd"), rows, {}, **kinds[kind]
        )

    def control(self) -> None:
        watched, verb = (
            self._rng.choice(list(self.watched.values())),
            self._rng.choice(("pause", "resume", "cancel")),
        )
        if verb == "cancel":
            self.asked_to_end.add(watched.seen.name)
        getattr(watched.run, verb)()

    def look_at(self) -> None:
        run = self._rng.choice(list(self.watched.values())).run
        if run.status().state.finished:
            run.summary()
        assert str(run.why())

    def change_limit(self) -> None:
        self.deployment.lanes.limit(self.lane("d"), {"max_concurrency": self._rng.choice((1, 4, None))})

    def change_share(self) -> None:
        registry = Registry(self.deployment.redis, self.deployment.keys)
        registry.put(self._rng.choice(TEAMS), TeamRecord(weight=self._rng.choice((0.1, 1.0, 50.0))))

    def change_budget(self) -> None:
        self.budgets.set(self._rng.choice(TEAMS), "day", {"requests": self._rng.choice((1, None))})

    def pause_lane(self) -> None:
        lane = self.lane(self._rng.choice("abcd"))
        if self.deployment.lanes.knows(lane):
            getattr(self.deployment.lanes, self._rng.choice(("pause", "resume")))(lane)

    def change_mood(self) -> None:
        mood = MOODS[self._rng.choice(sorted(MOODS))]
        self.deployment.provider.change_model(self.model(self._rng.choice("abcd")), faults=mood)

    def _act(self) -> None:
        more = (self.begin_run, self.control, self.control, self.look_at, self.change_mood, self.change_mood)
        acts = (*more, self.change_limit, self.change_share, self.change_budget, self.pause_lane)
        for _ in range(ACTS):
            threading.Event().wait(self._rng.uniform(0, 2 * ACTING_S / ACTS))
            self._try(self._rng.choice(acts))

    def _try(self, act: Callable[[], object]) -> bool:
        """Whether an act was possible; what is not is said in a sentence, and anything else is a defect."""
        try:
            act()
        except (FairlaneError, RedisError) as error:
            if not str(error):
                self.defects.append(Violation("sentences", repr(error)))
            return False
        return True

    def close(self) -> None:
        """People undo what delays runs for good."""
        self._acting.join()
        super().close()
        lanes = [self.lane(letter) for letter in "abcd"]
        undone: list[Callable[[], object]] = [
            partial(self.budgets.set, team, "day", {"requests": None}) for team in TEAMS
        ]
        undone += [
            partial(self.deployment.lanes.resume, lane) for lane in lanes if self.deployment.lanes.knows(lane)
        ]
        undone += [watched.run.resume for watched in self.watched.values()]
        for undo in undone:
            wait_until(partial(self._try, undo))

    def violations(self, history: History) -> list[Violation]:
        """What became of it that must not be."""
        found = [
            *self.defects,
            *(Violation(name, text) for name in PROMISES for text in CHECKS[name](history)),
        ]
        found += [
            Violation("records", f"{watched.seen.name}: {text}")
            for watched in self.watched.values()
            if watched.seen.done_s is not None
            for text in self._wrong_records(watched)
        ]
        used, before = self._used(), self._used_before
        for team in TEAMS:
            asked = {question for run in history.runs if run.team == team for question in run.questions}
            paid = sum(call.paid and call.question.removeprefix(JUDGED) in asked for call in history.calls)
            if used[team] - before[team] < paid:
                found.append(
                    Violation("budgets", f"{team} paid {paid} calls, {used[team] - before[team]:g} count")
                )
        return found

    def _wrong_records(self, watched: Watched) -> Iterator[str]:
        status, records = watched.run.status(), list(watched.run.results())
        if [record.item for record in records] != list(range(len(watched.seen.questions))):
            yield f"has records of {[record.item for record in records]}"
            return
        if sorted(record.item for record in watched.run.stream()) != list(range(len(records))):
            yield "streams other records"
        if not status.jobs == status.jobs_done == sum(status.by_state.values()):
            yield f"counts {status.jobs_done} of {status.jobs} jobs, {dict(status.by_state)}"
        if status.state is RunState.CANCELLED and watched.seen.name not in self.asked_to_end:
            yield "nobody has cancelled it"
        for record, question in zip(records, watched.seen.questions, strict=True):
            if record.state is JobState.SUCCEEDED and record.output != question:
                yield f"item {record.item} has the answer {record.output!r}"
            if record.state is JobState.FAILED and not record.error:
                yield f"item {record.item} failed without a reason"

    def _used(self) -> Counter[str]:
        now_ms = int(self.deployment.redis.time()[0]) * 1000
        stated = [each for each in self.budgets.of(TEAMS, now_ms) if each.per == "month"]
        return Counter({each.team: int(each.used) for each in stated})


def play_generated(deployment: Deployment, seed: int) -> list[Violation]:
    """Play one sequence on a whole deployment, which is whole again afterwards; what went wrong."""
    faults = draw(seed, FAULTS).faults[:MOST_FAULTS]
    deployment.begin()
    workload = Generated(deployment, seed)
    return workload.violations(Player(deployment, Schedule(seed, faults), workload).play())


def main(seeds: list[int]) -> int:
    """Play these seeds; 1 if something went wrong."""
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-generated-") as folder,
        deployed(Path(folder)) as deployment,
    ):
        found = [f"{seed}: {each}" for seed in seeds for each in play_generated(deployment, seed)]
    print("\n".join(found) or "all is well")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main([int(text) for text in sys.argv[1:]]))
