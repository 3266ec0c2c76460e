"""What teams wrote is rendered, scored and decoded beside the worker's event loop, with the same records."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from structlog.testing import capture_logs

from fairlane.core.errors import CutOff, NoChild
from fairlane.datasets.rows import encode_page
from fairlane.model.evaluators import Assertions, ExactMatch, Judge, Regex
from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import Success
from fairlane.model.run import CacheChoice, Order, RunRef
from fairlane.sandbox.pool import Pool
from fairlane.sandbox.process import Limits
from fairlane.store.write.runs.inbox import Inbox
from fairlane_workers.execution.child_work import RUNS_KEPT, ChildWork
from tests.support.worker_parts import WorkerParts, lines, on_loop

USUAL = Limits(cpu_s=10.0, wall_s=60.0)
STRICT = Limits(cpu_s=0.02, wall_s=60.0)
PROMPT = "{% for word in q.split() %}{{ word|upper }} {% endfor %}"
SLOW_PROMPT = "{% for a in q %}{% for b in q %}{{ a|upper }}{% endfor %}{% endfor %}"
SLOW_CHECKS = [{"type": "regex", "value": f"(a+)+b{n}"} for n in range(20)]


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    pool = Pool(2, getattr(request, "param", USUAL), {})
    yield pool
    pool.close()


strict = pytest.mark.parametrize("pool", [STRICT], indirect=True)


def played(pool: Pool | None, scene: Callable[[WorkerParts], Coroutine[Any, Any, None]]) -> None:
    on_loop(scene, pool=pool)


def records(pool: Pool | None, **spec: Any) -> dict[bytes, bytes]:
    """The results of a run of two rows and of its judges, as they are stored."""
    found: dict[bytes, bytes] = {}

    async def scene(parts: WorkerParts) -> None:
        rows = [{"q": "one two", "a": [{"type": "regex", "value": "^y"}]}, {"q": "three", "a": "none"}]
        for attempt in parts.grant(rows, prompts=(({"role": "user", "content": PROMPT},),), **spec):
            await parts.executor.execute(attempt)
        if spec.get("evaluators", ())[-1:] and isinstance(spec["evaluators"][-1], Judge):
            for attempt in parts.permits(RunRef("search", "r1"), 2, "sim:judge"):
                await parts.executor.execute(attempt)
        assert [each.messages[0]["content"] for each in parts.provider.requests][:2] == ["ONE TWO ", "THREE "]
        found.update(parts.scheduler.redis.hgetall(parts.keys.results(RunRef("search", "r1"))))

    played(pool, scene)
    return found


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"evaluators": (Regex(name="r", pattern="(y)(es)"), Assertions(name="a", field="a"))},
        {
            "evaluators": (
                ExactMatch(name="e", expected="q"),
                Judge(name="j", model="sim:judge", template="{{ output|upper }}", choices={"yes": 1.0}),
            ),
            "cache": CacheChoice(mode="read_write"),
        },
    ],
    ids=["rendered", "scored", "judged and cached"],
)
def test_a_child_leaves_the_records_that_the_worker_would(pool: Pool, spec: dict[str, Any]) -> None:
    assert records(pool, **spec) == records(None, **spec)
    assert pool.pids


def test_plain_templates_and_simple_evaluators_start_no_child(pool: Pool) -> None:
    async def scene(parts: WorkerParts) -> None:
        judge = Judge(name="j", model="sim:judge", template="{{ q }} {{ output }}", choices={"yes": 1.0})
        (attempt,) = parts.grant([{"q": "yes"}], evaluators=(ExactMatch(name="e", expected="q"), judge))
        await parts.executor.execute(attempt)
        (judged,) = parts.permits(RunRef("search", "r1"), 1, "sim:judge")
        await parts.executor.execute(judged)
        assert parts.task(attempt).scores == {"e": 1.0}
        assert parts.judged(judged).score == 1.0

    played(pool, scene)
    assert pool.pids == []


@pytest.mark.parametrize("way", ["serial", "turns"])
def test_a_conversation_goes_on_through_children(pool: Pool, way: str) -> None:
    async def scene(parts: WorkerParts) -> None:
        prompt = "{% for turn in _conversation %}{{ turn.input }}>{{ turn.output }} {% endfor %}{{ q }}"
        parts.provider.answer = lambda request: Success(f"{len(request.messages[0]['content'])}")
        rows, prompts = [{"q": "a"}, {"q": "b"}], (({"role": "user", "content": prompt},),)
        run = parts.scheduler.admit(rows, prompts=prompts, order=Order(**{way: True}, conversation=True))
        for _ in rows:
            run.may_feed_next = True
            parts.scheduler.feed_all()
            (attempt,) = parts.permits(run.ref, 1, "sim:fast")
            await parts.executor.execute(attempt)
        assert [each.messages[0]["content"] for each in parts.provider.requests] == ["a", "a>1 b"]

    played(pool, scene)


def test_a_large_page_is_decoded_in_a_child_and_its_rows_are_read_alone(pool: Pool) -> None:
    async def scene(parts: WorkerParts) -> None:
        rows = [{"q": f"{n}-" + "x" * 3000} for n in range(200)]
        attempts = parts.grant(rows, count=120, page_rows=200)
        for attempt in (attempts[0], attempts[119]):
            await parts.executor.execute(attempt)
        asked = [each.messages[0]["content"][:5] for each in parts.provider.requests]
        assert asked == ["0-xxx", "119-x"]
        assert (len(parts.inputs._pages), len(parts.inputs._large_pages)) == (1, 1)
        ref = RunRef("search", "r1")
        parts.inputs.forget(ref)
        parts.scheduler.redis.hset(parts.keys.rows(ref), "0", encode_page([{"q": ["x"]}] * 400_000))
        await parts.executor.execute(attempts[2])
        assert parts.task(attempts[2]).error == (
            "page 0 of the run's rows: a page of rows holds more than 10,000 rows"
        )

    played(pool, scene)


@strict
def test_a_rendering_that_runs_over_fails_its_job_and_the_loop_goes_on(pool: Pool) -> None:
    async def scene(parts: WorkerParts) -> None:
        prompts = (({"role": "user", "content": SLOW_PROMPT},),)
        (attempt,) = parts.grant([{"q": "a" * 330}], prompts=prompts)
        beats, loop, done = 0, asyncio.get_running_loop(), parts.start(attempt)

        def beat() -> None:
            nonlocal beats
            beats += 1
            if not done.done():
                loop.call_later(0.001, beat)

        beat()
        await done
        assert beats > 10, "the loop turned while the child computed"
        assert parts.provider.requests == []
        result = parts.task(attempt)
        assert (result.state, result.error) == (
            JobState.FAILED,
            "prompts: it was ended, as it computed for more than 0.02 s (sandbox.cpu_seconds); "
            "simplify it, or shorten the row's values",
        )

    played(pool, scene)


@strict
def test_a_score_that_runs_over_keeps_the_output_and_says_why(pool: Pool) -> None:
    async def scene(parts: WorkerParts) -> None:
        judge = Judge(name="j", model="sim:judge", template="{{ output }}", choices={"yes": 1.0})
        evaluators = (Assertions(name="a", field="checks"), judge)
        (attempt,) = parts.grant([{"q": "a", "checks": SLOW_CHECKS}], evaluators=evaluators)
        parts.provider.answer = Success("a" * 3000)
        await parts.executor.execute(attempt)
        result = parts.task(attempt)
        assert (result.state, result.output, result.scores) == (JobState.SUCCEEDED, "a" * 3000, {"a": None})
        assert result.model == "sim:fast"
        assert "evaluators: it was ended, as it computed for more than 0.02 s" in result.score_errors["a"]
        judged = parts.judged(Attempt("r1", "search", 1, 1, "sim:judge"))
        assert (judged.state, judged.error) == (JobState.INVALID, result.score_errors["a"])
        assert parts.state(attempt)["state"] == "completed"

    played(pool, scene)


@strict
def test_a_run_is_paused_after_a_few_pieces_that_were_cut_off(pool: Pool) -> None:
    async def scene(parts: WorkerParts) -> None:
        prompts = (({"role": "user", "content": SLOW_PROMPT},),)
        attempts = parts.grant([{"q": "a" * 330}] * 3, prompts=prompts)
        with capture_logs() as logs:
            for attempt in attempts[:2]:
                await parts.executor.execute(attempt)
        assert [(each["team"], each["what"]) for each in lines(logs, "work_cut_off")] == [
            ("search", "prompts"),
            ("search", "prompts"),
        ]
        await parts.batcher.send(("PING",))
        (request,) = Inbox(parts.scheduler.redis, parts.keys).peek("search")
        assert request is not None
        assert (request.op, request.run, request.by) == (
            "pause",
            "r1",
            "a worker, as 2 of its prompts went past sandbox.cpu_seconds",
        )

    played(pool, scene)


def test_the_plan_of_a_hostile_run_is_compiled_in_the_child_alone(pool: Pool) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant([{"q": "a"}], prompts=(({"role": "user", "content": PROMPT},),))
        inputs = await parts.inputs.of(attempt)
        rendered = await parts.inputs.rendered(inputs)
        assert json.loads(json.dumps(rendered.call.messages)) == [{"role": "user", "content": "A "}]
        (prompt,) = inputs.item.rendering._prompts
        assert [template._body for _, template in prompt._messages] == [None]

    played(pool, scene)


def test_a_worker_forgets_in_which_of_many_runs_a_piece_was_cut_off(pool: Pool) -> None:
    async def scene(parts: WorkerParts) -> None:
        children = ChildWork(parts.batcher, parts.keys, pool, parts.settings)
        for number in range(RUNS_KEPT + 5):
            await children._note(RunRef("search", f"r{number}"), CutOff("prompts", "cpu", "sandbox.cpu"))
        assert len(children._cut_off) == RUNS_KEPT

    played(pool, scene)


def without_children(*_: object) -> Future[Any]:
    future = Future[Any]()
    future.set_exception(NoChild("no child process for what teams wrote can be started: no more processes"))
    return future


def test_a_worker_that_can_start_no_child_requeues_what_it_cannot_render(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "submit", without_children)

    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant([{"q": "one"}], prompts=(({"role": "user", "content": PROMPT},),))
        await parts.executor.execute(attempt)
        assert (parts.provider.requests, parts.leased()) == ([], 0)
        assert parts.scheduler.redis.zcard(parts.keys.delayed) == 1

    played(pool, scene)


def test_a_paid_answer_waits_for_a_child_that_scores_it(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    submit, refused = pool.submit, list[None]()

    def short_at_first(*work: Any) -> Future[Any]:
        if len(refused) < 2:
            refused.append(None)
            return without_children()
        return submit(*work)

    monkeypatch.setattr(pool, "submit", short_at_first)
    monkeypatch.setattr("fairlane_workers.execution.child_work.AGAIN_S", 0.01)

    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant([{"q": "one"}], evaluators=(Regex(name="r", pattern="(y)(es)"),))
        await parts.executor.execute(attempt)
        assert (parts.task(attempt).scores, len(parts.provider.requests)) == ({"r": 1.0}, 1)

    played(pool, scene)
