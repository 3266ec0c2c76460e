"""Why a run waits that its own bounds hold back: they are named, with their numbers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from redis import Redis

from fairlane.config.settings import Settings
from fairlane.model.choices import Continuation
from fairlane.model.ending import OUT_OF_BUDGET, TIMED_OUT, Completion, ReadyJob, RecordedJob
from fairlane.model.evaluators import Agent, Criterion
from fairlane.model.job import Feedback, JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import Bounds, Order, Plan, RunRef
from fairlane.model.tokens import Estimate
from fairlane.store.read.job_waits import RunTraces
from fairlane.store.write.permits import Offer
from fairlane.store.write.runs.runs import Turn, bounds_of
from fairlane.store.write.workers import WorkerInfo
from fairlane.why.targets import Explainer
from fairlane.why.waiting import LaneWait, Waiting
from tests.support.deployment import PLENTY, Deployment, attempts_of, entry, make_spec
from tests.support.documents import ROOT, coded, table

TASKS, JUDGES = "sim:fast", "sim:judge"
LUA = ROOT / "shared" / "fairlane" / "store" / "lua" / "lib" / "run" / "bounds.lua"


class Asked:
    """A run with bounds of its own on a deployment with a hundred slots, and somebody who asks about it."""

    def __init__(self, redis: Redis) -> None:
        self.d = Deployment(redis)
        self.d.lane(TASKS)
        self.d.lane(JUDGES)
        info = WorkerInfo("w1", 100, (TASKS, JUDGES), "1", 1, "box", 0)
        self.d.workers.beat("w1", info, [], 1000, changed=True, now_ms=self.d.now_ms).run(self.d.redis)

    def run(
        self,
        rows: int = 10,
        judges: int = 0,
        order: Order | None = None,
        prices: Any = None,
        cap: int | None = None,
        feed: int | None = None,
        **bounds: Any,
    ) -> RunRef:
        """A run that is admitted, and ``feed`` of its items fed (all, if left out)."""
        settings = Settings.model_validate({"prices": prices or {}, "scheduler": {"max_concurrent": cap}})
        spec = make_spec("search", "r1", rows, judges, self.d.now_ms).model_copy(
            update={"bounds": Bounds(**bounds), "order": order or Order()}
        )
        plan = Plan(spec=spec, eval_lanes=(JUDGES,) * len(spec.evals))
        ref = self.d.upload(spec)
        self.d.runs.admit(
            plan,
            self.d.epoch,
            self.d.now_ms,
            bounds=bounds_of(plan, settings.prices, settings.scheduler.max_concurrent),
        )
        self.d.feed(ref, rows if feed is None else feed, TASKS, Estimate(60, 40))
        return ref

    def grant(self, ref: RunRef, lane: str = TASKS, ahead: int = 0) -> int:
        """How many calls start now; ``ahead`` as the scheduler reckons it."""
        return len(self.d.ask([Offer(ref, PLENTY, ahead)], lane).permits)

    def why(self, target: str = "r1") -> Waiting:
        return Explainer(self.d.redis, self.d.keys, "search", {}, self.d.now_ms).why(target)


@pytest.fixture
def asked(real_redis: Redis) -> Asked:
    return Asked(real_redis)


def announced(found: Waiting | LaneWait) -> tuple[str, str]:
    return found.constraint, found.sentence


def test_a_runs_own_number_of_calls_at_once_is_reported(asked: Asked) -> None:
    ref = asked.run(max_concurrent=3)
    assert asked.why().constraint == "nothing"
    assert asked.grant(ref) == 3
    words = "the run has 3 calls in flight of 3, its own bound"
    assert announced(asked.why()) == ("max_concurrent", words)
    assert announced(asked.why("r1/5")) == ("max_concurrent", words)
    assert asked.why().eta.at_least


def test_a_concurrency_bound_of_its_own_and_a_known_latency_report_when_the_last_call_starts(
    asked: Asked,
) -> None:
    ref = asked.run(rows=13, max_concurrent=3)
    first, *_ = asked.d.start(ref, 3)
    asked.d.advance(2000)
    asked.d.finish(first)
    asked.d.start(ref, 1)
    found = asked.why()
    latency_ms = asked.d.lanes.view(TASKS, asked.d.now_ms).latency_ms
    assert latency_ms is not None
    assert found.eta.at_ms == pytest.approx(asked.d.now_ms + 9 * latency_ms / 3, rel=0.2)


def test_the_deployments_cap_is_reported(asked: Asked) -> None:
    ref = asked.run(cap=2)
    assert asked.grant(ref) == 2
    words = (
        "the deployment has 2 calls in flight of 2: its scheduler.max_concurrent when the run was admitted"
    )
    assert announced(asked.why()) == ("cap", words)


def test_a_run_whose_first_calls_have_no_answer_yet_says_so_with_the_time(asked: Asked) -> None:
    ref = asked.run()
    assert len(asked.d.ask([Offer(ref, PLENTY, first=3)], TASKS).permits) == 3
    words = (
        "sim:fast has answered none of the run's first 3 calls yet: more start with an answer, or in a moment"
    )
    assert announced(asked.why()) == ("first_calls", words)
    asked.d.advance(1000)
    assert asked.why().constraint == "nothing"


def test_a_run_whose_first_rows_were_rejected_waits_for_the_answers_from_elsewhere(asked: Asked) -> None:
    ref, d = asked.run(rows=30), asked.d
    offers = [Offer(ref, PLENTY, first=5)]
    front = attempts_of(d.ask(offers, TASKS), offers, TASKS)[:3]
    d.advance(250)
    feedback = Feedback("answered", reason="empty", refusal="400 empty")
    for attempt in front + attempts_of(d.ask(offers, TASKS), offers, TASKS)[:2]:
        assert d.claim(attempt) is not None
        assert d.report(attempt, feedback, done=True) is not None
    words = (
        "sim:fast has answered none of the run's first 10 calls yet and rejected 5 alike: "
        "more start if one of the other 2 is answered"
    )
    assert announced(asked.why()) == ("first_calls", words)


def test_waiting_tasks_are_reported_with_a_configured_number(asked: Asked) -> None:
    ref = asked.run(judges=1, ahead=4)
    first, *_ = asked.d.start(ref, 4)
    asked.d.finish(first, follow=[ReadyJob(entry(first.job + 1, 10, 1), JUDGES)])
    words = "its tasks wait for its evaluations: 4 items of 4 have begun and are not evaluated"
    assert announced(asked.why().lanes[0]) == ("ahead", words)
    assert asked.why("r1/7").constraint == "ahead"
    assert asked.why("r1/0").constraint == "nothing"


def test_waiting_tasks_are_reported_without_the_schedulers_number(
    asked: Asked,
) -> None:
    ref = asked.run(judges=1)
    assert asked.grant(ref, ahead=6) == 6
    (part, _) = asked.why().lanes
    words = "its tasks wait for its evaluations: 6 items have begun and are not evaluated"
    assert (part.constraint, part.sentence) == ("ahead", words)


@pytest.mark.parametrize(("rate", "words"), [(2, "2 tasks a second"), (0.25, "0.25 tasks a second")])
def test_a_runs_own_rate_of_tasks_is_reported_with_its_next_moment(
    asked: Asked, rate: float, words: str
) -> None:
    ref = asked.run(task_rate=rate)
    assert asked.grant(ref) == 1
    found = asked.why()
    assert announced(found) == ("task_rate", f"the run's own rate: {words}")
    assert found.until_ms is not None
    assert found.until_ms == asked.d.now_ms + 1000 / rate - 100
    assert found.eta.at_ms == found.until_ms + 8 * 1000 / rate
    assert asked.why("r1/1").eta.at_ms == found.until_ms
    asked.d.advance(round(1000 / rate))
    assert asked.why().constraint == "nothing"


def test_a_runs_own_rate_of_evaluations_is_reported(asked: Asked) -> None:
    ref = asked.run(judges=1, task_rate=0, eval_rate=1)
    for attempt in asked.d.start(ref, 3):
        asked.d.finish(attempt, follow=[ReadyJob(entry(attempt.job + 1, 10, 1), JUDGES)])
    assert asked.grant(ref, JUDGES) == 1
    (_, part) = asked.why().lanes
    assert (part.constraint, part.sentence) == ("eval_rate", "the run's own rate: 1 evaluations a second")


def test_the_least_time_between_a_runs_starts_is_reported(asked: Asked) -> None:
    ref = asked.run(delay=5)
    assert asked.grant(ref) == 1
    found = asked.why()
    assert announced(found) == (
        "delay",
        "the run's calls on sim:fast start at least 5 s apart; the next in 5 s",
    )
    assert found.until_ms == asked.d.now_ms + 5000
    assert found.eta.at_ms == asked.d.now_ms + 9 * 5000


def test_a_run_with_a_start_starts_nothing_before_it_and_says_when(asked: Asked) -> None:
    ref = asked.run(start_ms=asked.d.now_ms + 5000)
    assert asked.grant(ref) == 0
    found = asked.why()
    assert announced(found) == ("delay", "the run is to start in 5 s")
    assert (found.until_ms, found.eta.at_ms) == (asked.d.now_ms + 5000, asked.d.now_ms + 5000)
    asked.d.clock.advance(4.999)
    assert asked.grant(ref) == 0
    asked.d.clock.advance(0.001)
    assert asked.grant(ref) == 10, "nothing paces the run after that"


def test_a_delay_with_one_call_at_once_is_a_serial_gate(asked: Asked) -> None:
    ref = asked.run(delay=5, max_concurrent=1)
    (first,) = asked.d.start(ref, 1)
    asked.d.clock.advance(60)
    assert asked.grant(ref) == 0, "the delay is over, and the call before is not"
    asked.d.finish(first)
    assert asked.grant(ref) == 1


def test_a_start_and_a_rate_hold_together(asked: Asked) -> None:
    ref = asked.run(start_ms=asked.d.now_ms + 5000, task_rate=1)
    asked.d.clock.advance(5)
    assert asked.grant(ref) == 1
    asked.d.clock.advance(1)
    assert asked.grant(ref) == 1


def test_a_budget_of_tokens_is_reported_with_its_use(asked: Asked) -> None:
    ref = asked.run(budget_tokens=250)
    assert asked.grant(ref) == 2
    constraint, words = announced(asked.why())
    assert constraint == "budget"
    assert words == (
        "200 of the run's budget of 250 tokens are used or reserved, and the next call may exceed it: "
        "it may use 100 tokens, and 50 are left"
    )


def test_a_budget_of_money_is_reported_with_its_use(asked: Asked) -> None:
    price = {"input": 1000.0, "output": 1000.0}
    ref = asked.run(prices={TASKS: price}, budget_usd=0.25)
    assert asked.grant(ref) == 2
    assert announced(asked.why())[0] == "budget"
    assert announced(asked.why())[1].startswith("$0.20 of the run's budget of $0.25 are used")
    assert announced(asked.why())[1].endswith("it may cost $0.10, and $0.05 is left")


def test_a_serial_run_waits_for_the_item_whose_turn_it_is(asked: Asked) -> None:
    ref = asked.run(rows=5, judges=1, order=Order(serial=True), feed=1)
    (attempt,) = asked.d.start(ref)
    words = "its items run one at a time: 4 more wait for item 0"
    assert announced(asked.why("r1/3")) == ("serial", f"item 3 is not fed yet: {words}")
    asked.d.finish(attempt, follow=[ReadyJob(entry(attempt.job + 1, 10, 1), JUDGES)])
    (part, judge) = asked.why().lanes
    assert (part.constraint, part.sentence) == ("serial", words)
    assert (judge.queued, judge.constraint) == (1, "nothing")
    assert part.eta.at_least


def test_a_turn_waits_for_those_before_it(asked: Asked) -> None:
    ref = asked.run(rows=20, order=Order(turns=True, conversation=True, conversation_field="who"), feed=0)
    d, turns = asked.d, [Turn(item, -1) for item in (0, 3, 11, 17)]
    entries = {TASKS: [entry(turn.item, 10) for turn in turns]}
    d.runs.feed(ref, d.epoch, 0, 4, entries, [], d.now_ms, turns=turns)
    traces = RunTraces(d.redis, d.keys, ref)
    assert [traces.unfed_before(item) for item in (0, 1, 2, 3, 9, 11, 12, 18, 19)] == [
        None, 0, 1, None, 7, None, 9, 14, 15,
    ]  # fmt: skip
    words = "the turns of a conversation run one at a time: 16 more wait for the turns before theirs"
    found = announced(asked.why("r1/12"))
    assert found[0] == "serial"
    assert found[1].startswith(f"item 12 is not fed yet: {words}")
    assert asked.why().lanes[0].unfed == 16


def test_items_that_go_first_are_waited_for_until_all_have_gone(asked: Asked) -> None:
    ref = asked.run(rows=4, order=Order(serial_field="first"), feed=0)
    d = asked.d
    d.runs.feed(ref, d.epoch, 0, 2, {TASKS: [entry(1, 10)]}, [], d.now_ms, handed=1)
    words = "its items run one at a time: 3 more wait for item 1"
    assert announced(asked.why("r1/0")) == ("serial", f"item 0 is not fed yet: {words}")
    (attempt,) = d.start(ref)
    d.finish(attempt)
    d.runs.feed(ref, d.epoch, 2, 4, {}, [], d.now_ms, handed=0)
    d.runs.feed(ref, d.epoch, 4, 5, {TASKS: [entry(0, 10)]}, [], d.now_ms, handed=1)
    assert asked.why().lanes[0].unfed == 2
    found = asked.why("r1/2")
    assert (found.constraint, "1 items are fed before it" in found.sentence) == ("feeding", True)
    assert asked.why("r1/0").position == 1


def test_a_run_whose_rows_are_still_written_waits_for_them(asked: Asked) -> None:
    ref = asked.run(rows=1)
    asked.d.redis.hset(asked.d.keys.state(ref), "open", "1")
    (attempt,) = asked.d.start(ref)
    assert asked.why().constraint == "running"
    asked.d.finish(attempt)
    found = asked.why()
    assert announced(found) == ("rows", "its rows are still being written")
    assert found.eta == (None, True)


@pytest.mark.parametrize(
    ("ending", "constraint", "words"),
    [
        (TIMED_OUT, "timed_out", "the run is timed out: its max_duration is over"),
        (OUT_OF_BUDGET, "stopped", "the run is stopped: the next call would exceed its budget"),
    ],
)
def test_a_run_that_ended_before_its_time_says_why(
    asked: Asked, ending: Any, constraint: str, words: str
) -> None:
    ref = asked.run()
    (attempt, _) = asked.d.start(ref, 2)
    asked.d.finish(attempt)
    asked.d.runs.end(ref, [TASKS, JUDGES], ending, asked.d.epoch, asked.d.now_ms)
    assert announced(asked.why()) == (constraint, words)
    assert announced(asked.why("r1/5")) == (constraint, f"its run is over: {words}")
    assert asked.why("r1/0").constraint == "done"


def test_a_blocked_lane_comes_before_a_runs_own_bounds(asked: Asked) -> None:
    ref = asked.run(max_concurrent=3)
    asked.grant(ref)
    asked.d.lanes.pause(TASKS)
    assert asked.why().constraint == "paused"


def test_a_team_sees_that_its_calls_alone_fail(asked: Asked) -> None:
    ref, d = asked.run(), asked.d
    d.redis.hset(d.keys.lane(TASKS), "shut_teams", f"other:3:9,{ref.team}:7:{d.now_ms}")
    assert asked.grant(ref) == 1
    constraint, sentence = announced(asked.why())
    assert constraint == "circuit"
    assert sentence == (
        f"{TASKS} answers other teams, and none of team search's calls: they start one at a time until one is"
        " answered"
    )


def test_a_team_sees_that_its_calls_alone_meet_429s(asked: Asked) -> None:
    ref, d = asked.run(), asked.d
    d.redis.hset(d.keys.lane(TASKS), "refused_teams", f"other:3:9:0,{ref.team}:7:{d.now_ms + 1000}:1")
    assert asked.grant(ref) == 0
    constraint, sentence = announced(asked.why())
    assert constraint == "circuit"
    assert sentence == (
        f"{TASKS} answers other teams, and meets 429s with team search's calls: they start one at a time"
        " until one is answered"
    )
    d.redis.hset(d.keys.state(ref), f"answered:0:{TASKS}", 1)
    assert asked.why().constraint != "circuit"


def test_of_two_rates_the_slower_is_reported(asked: Asked) -> None:
    asked.d.lane(TASKS, requests_per_minute=6)
    ref = asked.run(task_rate=2)
    other = asked.d.submit(run="r2", rows=5)
    asked.d.feed(other, 5)
    asked.grant(ref)
    assert asked.why().constraint == "task_rate"
    asked.grant(other)  # which finds the lane's rate used up for ten seconds
    assert asked.why().constraint == "requests"
    asked.d.lane(TASKS, requests_per_minute=6000)
    assert asked.why().constraint == "task_rate"


def test_a_criterion_waits_for_the_call_that_asks_for_all_at_once(asked: Asked) -> None:
    d = asked.d
    criteria = tuple(Criterion(id=f"c{n}", description="?") for n in range(2))
    agent = Agent(name="style", model="sim:judge", template="{{ output }}", criteria=criteria, batching=True)
    spec = make_spec("search", "r1", 1, 0, d.now_ms).model_copy(update={"evaluators": (agent,)})
    spec = type(spec).model_validate_json(spec.model_dump_json())
    plan = Plan(spec=spec, eval_lanes=(JUDGES,) * 3)
    ref = d.upload(spec)
    d.runs.admit(plan, d.epoch, d.now_ms)
    d.feed(ref, 1)
    (attempt,) = d.start(ref)
    assert "an output that does not exist yet" in asked.why("r1/0/style.c1").sentence
    d.finish(attempt, follow=[ReadyJob(entry(1, 10, 1), JUDGES)])
    found = asked.why("r1/0/style.c1")
    assert (found.constraint, found.sentence.partition(":")[0]) == (
        "task",
        "it gets a call of its own only if the answer to all of them lacks it",
    )


def test_given_outputs_are_evaluated_without_a_task_to_wait_for(asked: Asked) -> None:
    d = asked.d
    spec = make_spec("search", "r1", 4, 1, d.now_ms).model_copy(
        update={"output_field": "answer", "models": (), "prompts": ()}
    )
    ref = d.upload(spec)
    d.runs.admit(Plan(spec=spec, eval_lanes=(JUDGES,)), d.epoch, d.now_ms)
    assert announced(asked.why()) == ("feeding", "its next items are about to be fed")
    over = [RecordedJob(0, "given", '{"s":"succeeded"}', "")]  # type: ignore[arg-type]
    d.runs.feed(ref, d.epoch, 0, 1, {JUDGES: [entry(1, 10)]}, over, d.now_ms)
    assert asked.why("r1/0/1").position == 1


def test_a_long_result_says_how_its_job_ended(asked: Asked) -> None:
    ref = asked.run(rows=2)
    (attempt,) = asked.d.start(ref)
    result = TaskResult(JobState.SUCCEEDED, "word " * 500).to_json()
    call = asked.d.attempts.finish(
        attempt, "w1", Feedback("ok"), Completion(JobState.SUCCEEDED, result), asked.d.now_ms
    )
    call.run(asked.d.redis)
    assert announced(asked.why("r1/0")) == ("done", "it is over: succeeded")


def test_a_paused_run_says_so_for_all_of_it_and_for_each_job(asked: Asked) -> None:
    ref = asked.run(rows=10, feed=6)
    asked.d.start(ref, 2)
    asked.d.runs.pause(ref, "ann@host", asked.d.epoch, asked.d.now_ms)
    asked.d.advance(120_000)
    words = "the run was paused by ann@host 2 min ago; `fairlane resume r1` resumes it"
    for target in ("r1", "r1/5", "r1/9"):
        assert announced(asked.why(target)) == ("run_paused", words)
    assert announced(asked.why().lanes[0]) == ("run_paused", words)
    assert asked.why().eta == (None, True)
    assert asked.why("r1/0").constraint == "running"
    assert asked.why(TASKS).constraint == "run_paused"


def test_no_job_waits_for_a_paused_run(asked: Asked) -> None:
    ref = asked.run(rows=50)
    other = asked.d.submit(run="r2", rows=5)
    asked.d.feed(other, 5)
    before = asked.why("r2/4").ahead
    asked.d.runs.pause(ref, "", asked.d.epoch, asked.d.now_ms)
    after = asked.why("r2/4").ahead
    assert (before, after) == (8, 4)


def test_every_bound_is_described() -> None:
    script = re.findall(r"return '(\w+)',", LUA.read_text(encoding="utf-8"))
    described = {
        code
        for row in table(ROOT / "docs" / "constraints.md", "bound", "delays")
        for code in coded(row["bound"])
    }
    elsewhere = {"task_rate", "eval_rate", "serial", "team_share", "request_refused", "model", "first_calls"}
    assert described == {*script} | elsewhere


def test_a_run_behind_a_damaged_one_that_it_continues_names_the_key(asked: Asked) -> None:
    old, d = asked.run(), asked.d
    d.cancel(old)
    continues = Continuation(run=old.run, prompts=(0,), models=(0,), steps=(0,), repetitions=1)
    spec = make_spec("search", "r2", 10, 0, d.now_ms).model_copy(update={"continues": continues})
    d.upload(spec)
    d.runs.admit(Plan(spec=spec), d.epoch, d.redis_ms)
    key = d.keys.results(old)
    d.redis.set(key, "x")
    for target in ("r2", "r2/0"):
        found = asked.why(target)
        assert found.constraint == "scheduler"
        assert f"redis-cli DEL '{key}'" in found.sentence
    d.redis.delete(key)
    assert key not in asked.why("r2").sentence
