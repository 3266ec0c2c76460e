"""Sessions on their way through scheduler and worker: what becomes ready, what is asked, what is skipped."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from fairlane.client.following.progress import open_progress
from fairlane.datasets.rows import encode_page
from fairlane.model.decision import RetryPolicy
from fairlane.model.ending import CANCELLED
from fairlane.model.evaluators import FunctionScorer, Judge
from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import AccessDenied, Outcome, PermanentFailure, Success
from fairlane.model.results import JudgeResult
from fairlane.model.run import RunRef, RunState
from fairlane.model.sessions import members_field, memberships_field, session_of_job
from fairlane.store.read.reading import RunReader
from fairlane.store.write.permits import Offer
from fairlane_scheduler.state.backlog import ActiveRun
from fairlane_workers.providers.contract import Request
from tests.support.scheduler_parts import Parts
from tests.support.worker_parts import WorkerParts, on_loop

REF = RunRef("search", "r1")
JUDGE = Judge(
    name="whole",
    model="sim:judge",
    level="session",
    template="{% for turn in session %}{{ turn.row.q }}={{ turn.output or '?' }};{% endfor %}",
    choices={"yes": 1.0, "no": 0.0},
)
ROWS = [{"q": "a1", "s": "a"}, {"q": "b1", "s": "b"}, {"q": "a2", "s": "a"}]


def sessions_of(rows: Sequence[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """What a run of these rows is admitted with."""
    reported = {"session_field": "s", "sessions": len({row["s"] for row in rows}), "evaluators": (JUDGE,)}
    return {"rows": list(rows)} | reported | spec


def admit(parts: Parts, rows: Sequence[dict[str, Any]] = ROWS, **spec: Any) -> ActiveRun:
    given = sessions_of(rows, **spec)
    return parts.admit(given.pop("rows"), **given)


def hot(parts: Parts, lane: str = "sim:judge") -> list[str]:
    redis: Any = parts.redis
    return [entry.decode() for entry in redis.lrange(parts.keys.hot(REF, lane), 0, -1)]


def judge(parts: Parts, job: int) -> JudgeResult:
    text = parts.redis.hget(parts.keys.results(REF), str(job))
    assert text is not None, f"job {job} has no record"
    return JudgeResult.from_json(text)


def echo(request: Request) -> Outcome:
    """Judges say yes, the others repeat what they are asked; what is asked with a "!" is refused content."""
    asked = request.messages[-1]["content"]
    if "!" in asked:
        return PermanentFailure("refused", 400, content=True)
    return Success("yes" if request.model == "judge" else asked.upper())


async def work_off(parts: WorkerParts, lanes: Sequence[str] = ("sim:fast", "sim:judge")) -> list[Attempt]:
    """Execute everything until nothing is queued; the attempts in order."""
    done: list[Attempt] = []
    parts.scheduler.feed_all()
    while True:
        queued = {lane: count for lane, count in parts.scheduler.runs.queued(REF, lanes).items() if count}
        if not queued:
            return done
        for lane, count in queued.items():
            for attempt in parts.permits(REF, count, lane):
                await parts.executor.execute(attempt)
                done.append(attempt)


def test_a_session_is_judged_over_its_turns_in_the_order_of_rows() -> None:
    async def scene(parts: WorkerParts) -> None:
        admit(parts.scheduler)
        parts.provider.answer = echo
        done = await work_off(parts)

        assert [each.job for each in done] == [0, 1, 2, 4, 3]
        asked = [each.messages[0]["content"] for each in parts.provider.requests if each.model == "judge"]
        assert asked == ["b1=B1;", "a1=A1;a2=A2;"]
        made = zip(parts.provider.requests, parts.provider.heard, strict=True)
        assert not any(heard for asked, heard in made if asked.model == "judge")
        assert [judge(parts.scheduler, job).score for job in (3, 4)] == [1.0, 1.0]
        state = parts.scheduler.state(REF)
        assert (state["state"], state["jobs_done"], state["jobs"]) == ("completed", "5", "5")
        assert state["known:sim:judge"] == state["over:sim:judge"] == "2"

    on_loop(scene)


def test_each_repetition_is_a_session_of_its_own() -> None:
    async def scene(parts: WorkerParts) -> None:
        admit(parts.scheduler, repetitions=2)
        count = 0

        def numbered(request: Request) -> Outcome:
            nonlocal count
            count += 1
            return Success("yes" if request.model == "judge" else str(count))

        parts.provider.answer = numbered
        await work_off(parts)
        asked = [each.messages[0]["content"] for each in parts.provider.requests if each.model == "judge"]
        assert asked == ["b1=3;", "b1=4;", "a1=1;a2=5;", "a1=2;a2=6;"]

    on_loop(scene)


def test_a_turn_whose_item_failed_is_reported_without_an_output() -> None:
    async def scene(parts: WorkerParts) -> None:
        rows = [{"q": "a1", "s": "a"}, {"q": "a2!", "s": "a"}, {"no q": "a3", "s": "a"}]
        admit(
            parts.scheduler, rows, evaluators=(JUDGE.model_copy(update={"template": "{{ session|length }}"}),)
        )
        parts.provider.answer = echo
        await work_off(parts)
        found = await parts.inputs.of(Attempt("r1", "search", 3, 1, "sim:judge"))
        assert found.session is not None
        assert [turn["output"] for turn in found.session.turns] == ["A1", None, None]
        assert [turn["row"] for turn in found.session.turns] == rows
        assert judge(parts.scheduler, 3).state is JobState.SUCCEEDED

    on_loop(scene)


def test_a_session_without_any_output_is_skipped_and_says_why() -> None:
    async def scene(parts: WorkerParts) -> None:
        admit(parts.scheduler, [{"q": "1!", "s": "a"}, {"no q": "2", "s": "a"}])
        parts.provider.answer = echo
        done = await work_off(parts)
        assert [each.job for each in done] == [0]
        result = judge(parts.scheduler, 2)
        assert (result.state, result.error) == (JobState.SKIPPED, "no item of the session has an output")
        state = parts.scheduler.state(REF)
        assert (state["state"], state["jobs_done"], state["jobs"]) == ("completed", "3", "3")

    on_loop(scene)


def test_a_session_waits_for_the_evaluations_of_its_items() -> None:
    async def scene(parts: WorkerParts) -> None:
        item_judge = Judge(name="each", model="sim:slow", template="{{ output }}", choices={"yes": 1.0})
        admit(parts.scheduler, ROWS[:1], evaluators=(item_judge, JUDGE))
        parts.scheduler.feed_all()
        (task,) = parts.permits(REF, 1)
        await parts.executor.execute(task)
        assert hot(parts.scheduler) == []
        (evaluation,) = parts.permits(REF, 1, "sim:slow")
        await parts.executor.execute(evaluation)
        assert len(hot(parts.scheduler)) == 1

    on_loop(scene)


def test_a_function_takes_a_session_as_a_list_of_turns() -> None:
    async def scene(parts: WorkerParts) -> None:
        scorer = FunctionScorer(name="f", function="team.scorers:whole", level="session")
        spec = sessions_of(ROWS[:1], evaluators=(scorer,))
        parts.providers["python"] = parts.provider
        parts.scheduler.admit(spec.pop("rows"), **spec)
        parts.scheduler.feed_all()
        (task,) = parts.permits(REF, 1)
        parts.provider.answer = Success("out")
        await parts.executor.execute(task)
        (lane,) = parts.scheduler.runs.lanes(REF) - {"sim:fast"}
        (whole,) = parts.permits(REF, 1, lane)
        parts.provider.answer = Success("0.5")
        await parts.executor.execute(whole)
        arguments = parts.provider.requests[-1].arguments
        assert arguments == {"session": [{"row": ROWS[0], "output": "out"}]}
        assert judge(parts.scheduler, 1).score == 0.5

    on_loop(scene)


def test_a_session_over_outputs_that_exist_counts_sessions_alone(parts: Parts) -> None:
    rows = [{"s": n % 2, "out": "text"} for n in range(6)]
    admit(parts, rows, output_field="out", prompts=(), models=())
    parts.feed_all()
    assert [int(entry.partition(":")[0]) for entry in hot(parts)] == [6, 7]
    state = parts.state(REF)
    assert (state["jobs"], state["jobs_done"], state["items_done"]) == ("2", "0", "6")
    assert parts.redis.sismember(parts.keys.dirty, "sim:judge|search/r1")


def test_rows_whose_output_is_missing_are_no_jobs_of_a_run_over_outputs(parts: Parts) -> None:
    admit(parts, [{"s": 1, "out": "text"}, {"s": 1}, {"s": 2}], output_field="out", prompts=(), models=())
    parts.feed_all()
    state = parts.state(REF)
    assert (state["jobs"], state["jobs_done"], state["state"]) == ("2", "1", "running")
    assert judge(parts, 4).state is JobState.SKIPPED
    assert len(hot(parts)) == 1


def test_a_session_judge_reserves_tokens_for_all_its_turns(parts: Parts) -> None:
    rows = [{"s": 1, "q": "x" * 400, "out": "y" * 400}] * 5
    admit(parts, rows, output_field="out", prompts=(), models=())
    parts.feed_all()
    (entry,) = hot(parts)
    reserved = int(entry.split(":")[1])
    assert 5 * 200 <= reserved <= 5 * 200 + 20


def test_an_item_that_kills_its_workers_is_over_for_its_session(parts: Parts) -> None:
    admit(parts, [{"q": 1, "s": "a"}, {"q": 2, "s": "b"}], retry=RetryPolicy(max_attempts=1))
    parts.feed_all()
    for job in (0, 1):
        grant = parts.lanes.grant(
            "sim:fast",
            parts.leader.epoch,
            [Offer(REF, 1)],
            room=1,
            max_in_flight=9,
            lease_ms=15_000,
            now_ms=parts.now_ms,
        )
        assert grant is not None
        attempt = Attempt("r1", "search", job, grant.permits[0].number, "sim:fast")
        parts.attempts.claim(attempt, "w1", 15_000, parts.now_ms).run(parts.redis)
    parts.clock.advance(20)
    parts.redis.hset(parts.keys.leader, "until_ms", parts.now_ms + 60_000)
    parts.recoverer.tick(parts.moment())
    assert [judge(parts, job).state for job in (2, 3)] == [JobState.SKIPPED] * 2
    assert parts.state(REF)["state"] == "completed"


def test_what_a_client_takes_away_of_its_sessions_costs_that_run_its_evaluations_alone() -> None:
    async def scene(parts: WorkerParts) -> None:
        admit(parts.scheduler)
        parts.scheduler.redis.hdel(parts.keys.rows(REF), memberships_field(0))
        parts.provider.answer = echo
        await work_off(parts)
        state = parts.scheduler.state(REF)
        assert (state["state"], state["jobs_done"], state["n:skipped"]) == ("completed", "5", "2")

    on_loop(scene)


@pytest.mark.parametrize("field", [members_field(0), "0"])
def test_a_session_that_can_no_longer_be_read_fails_and_says_so(field: str) -> None:
    async def scene(parts: WorkerParts) -> None:
        admit(parts.scheduler)
        parts.provider.answer = echo
        parts.scheduler.feed_all()
        for attempt in parts.permits(REF, 3):
            await parts.executor.execute(attempt)
        parts.inputs.forget(REF)
        parts.scheduler.redis.hset(parts.keys.rows(REF), field, encode_page([]))
        await work_off(parts)
        results = [judge(parts.scheduler, job) for job in (3, 4)]
        assert [result.state for result in results] == [JobState.FAILED] * 2
        assert all("missing" in str(result.error) for result in results)
        assert parts.scheduler.state(REF)["state"] == "completed"

    on_loop(scene)


def test_a_session_evaluation_that_is_refused_goes_back_like_any_job() -> None:
    async def scene(parts: WorkerParts) -> None:
        admit(parts.scheduler, ROWS[:1])
        parts.provider.answer = echo
        parts.scheduler.feed_all()
        await parts.executor.execute(parts.permits(REF, 1)[0])
        (first,) = parts.permits(REF, 1, "sim:judge")
        parts.provider.answer = AccessDenied("no", 401)
        await parts.executor.execute(first)
        assert session_of_job(parts.scheduler.runs.plan(REF).spec, first.job) == (0, 0, 0)  # type: ignore[union-attr]
        assert parts.scheduler.state(REF)["state"] == "running"

    on_loop(scene)


@pytest.mark.parametrize(
    "wrong",
    [{"session_field": None}, {"open": True}],
)
def test_a_run_whose_sessions_cannot_be_distinguished_is_refused(parts: Parts, wrong: dict[str, Any]) -> None:
    given = sessions_of(ROWS)
    spec = parts.spec(len(given.pop("rows")), **given | wrong)
    parts.upload(spec.model_copy(update={"session_field": None}), ROWS)
    parts.redis.set(parts.keys.spec(REF), spec.model_dump_json())
    parts.receiver.tick(None, parts.moment())
    assert parts.state(REF)["state"] == "refused"
    assert "session evaluations" in parts.state(REF)["reason"]


def test_a_run_with_more_jobs_of_sessions_than_a_bitmap_holds_is_refused(parts: Parts) -> None:
    given = sessions_of(ROWS, sessions=10**9)
    spec = parts.spec(len(given.pop("rows")), **given)
    parts.redis.set(parts.keys.spec(REF), spec.model_dump_json())
    parts.outbox.submit(spec)
    parts.receiver.tick(None, parts.moment())
    assert "jobs" in parts.state(REF)["reason"]


GIVEN: dict[str, Any] = {"output_field": "out", "prompts": (), "models": ()}
EACH = Judge(name="each", model="sim:slow", template="{{ output }}", choices={"yes": 1.0})


@pytest.mark.parametrize(
    ("rows", "spec", "jobs"),
    [
        (ROWS, {"evaluators": ()}, 3),
        (ROWS, {"evaluators": (EACH,)}, 3 + 3),
        (ROWS, {"evaluators": (JUDGE,)}, 3 + 2),
        (ROWS, {"evaluators": (EACH, JUDGE)}, 3 + 3 + 2),
        ([row | {"out": "text"} for row in ROWS], {"evaluators": (JUDGE,), **GIVEN}, 2),
        ([row | {"out": "text"} for row in ROWS], {"evaluators": (EACH,), **GIVEN}, 3),
        ([row | {"out": "text"} for row in ROWS], {"evaluators": (EACH, JUDGE), **GIVEN}, 3 + 2),
        (ROWS, {"evaluators": (EACH, JUDGE), **GIVEN}, 3 + 2),
        ([row | {"q": "no!"} for row in ROWS], {"evaluators": (EACH, JUDGE)}, 3 + 3 + 2),
        ([{"s": row["s"]} for row in ROWS], {"evaluators": (EACH, JUDGE)}, 3 + 3 + 2),
    ],
    ids=[
        "items",
        "items judged",
        "sessions",
        "items and sessions judged",
        "sessions over outputs",
        "items over outputs",
        "items and sessions over outputs",
        "outputs that are missing",
        "items that fail",
        "items that are invalid",
    ],
)
@pytest.mark.parametrize("cancelled", [False, True], ids=["completed", "cancelled"])
def test_progress_ends_at_100_percent(
    rows: list[dict[str, Any]], spec: dict[str, Any], jobs: int, *, cancelled: bool
) -> None:
    async def scene(parts: WorkerParts) -> None:
        run = admit(parts.scheduler, rows, **spec)
        parts.provider.answer = echo
        if cancelled:
            scheduler = parts.scheduler
            scheduler.runs.end(
                REF, scheduler.lanes.names(), CANCELLED, scheduler.leader.epoch, scheduler.now_ms
            )
        else:
            await work_off(parts, ("sim:fast", "sim:slow", "sim:judge"))
        status = RunReader(parts.scheduler.redis, parts.keys).status(REF, run.plan.spec)
        assert status.state is (RunState.CANCELLED if cancelled else RunState.COMPLETED)
        assert (status.jobs, status.jobs_done, status.progress) == (jobs, jobs, 1.0)
        assert sum(status.by_state.values()) == jobs
        shown = io.StringIO()
        with open_progress(parts.clock, Console(file=shown, width=200)) as view:
            view.show(status)
        assert f"100 % {jobs}/{jobs}" in shown.getvalue()

    on_loop(scene)


def test_lanes_of_sessions_are_not_taken_for_lanes_of_tasks_when_a_run_is_loaded(parts: Parts) -> None:
    admit(parts)
    parts.feed_all()
    parts.loader.forget_all()
    parts.loader.refresh()
    run = parts.backlog.get(REF)
    assert run is not None
    assert run.task_lanes == {"sim:fast"}
