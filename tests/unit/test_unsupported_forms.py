"""The form that Fairlane adds to a judge's call fails no call, in whatever words a server rejects it."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from fairlane.model.decision import Defer, RetryPolicy, decide
from fairlane.model.job import Claim
from fairlane.model.outcome import (
    AccessDenied,
    FlawedAnswer,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
    UnsupportedParameter,
)
from fairlane.testing import ManualClock
from fairlane_workers.providers.contract import OnChunk, Request
from fairlane_workers.providers.unsupported.adapting import KEPT_MS, AdaptingProvider

FORM = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": {"minimum": 0}}}
TOOL: dict[str, Any] = {"tools": [{"type": "function"}], "tool_choice": "required"}
CLOCK = ManualClock()

WORDINGS = [
    "",
    'Grammar error: Unimplemented keys: ["minimum"]',
    "'response_format.type' must be 'json_object'",
    "response_format value as json_schema is enabled only for api versions 2024-08-01-preview and later",
    "grammar is not supported",
    "Failed to parse grammar",
    "Invalid value: 'json_schema'. Supported values are: 'json_object' and 'text'.",
    "unknown variant json_schema",
    "The provided JSON schema contains features not supported by xgrammar.",
    "No endpoints found that can handle the requested parameters",
]


class Server:
    """A server that answers requests with the fields ``lacks`` by ``said``, and others by ``otherwise``."""

    def __init__(self, said: Outcome, *lacks: str, otherwise: Outcome | None = None) -> None:
        self.said, self.lacks, self.otherwise = said, lacks, otherwise or Success("yes")
        self.sent: list[dict[str, Any]] = []

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        self.sent.append(request.params)
        return self.said if any(name in request.params for name in self.lacks) else self.otherwise

    async def prepare(self) -> None:
        """Nothing to load."""

    async def aclose(self) -> None:
        """Nothing to close."""


def ask(
    text: str = "a", *, optional: frozenset[str] = frozenset({"response_format"}), **params: Any
) -> Request:
    given = params or {"response_format": FORM}
    messages = [{"role": "user", "content": text}]
    return Request("m", messages, given, False, 9.0, 999, optional=optional)


def calls(provider: AdaptingProvider, *requests: Request) -> list[Outcome]:
    async def scene() -> list[Outcome]:
        return [await provider.call(request) for request in requests]

    return asyncio.run(scene())


def job(provider: AdaptingProvider, request: Request, attempts: int = 3) -> tuple[Outcome, int]:
    """A job's last outcome and the attempts that it used, with one worker and a lane that answers."""
    spent = 0
    for _ in range(4 * attempts):
        (outcome,) = calls(provider, request)
        made = decide(outcome, Claim(spent, 0, 0), RetryPolicy(max_attempts=attempts), random.Random(0))
        if not isinstance(made, Defer):
            return outcome, made.attempts
        if made.cost == "rejected":  # the script finds that it is the row's own
            return outcome, spent + 1
        spent += made.cost != "nothing"
        if spent >= attempts:
            return outcome, spent
    raise AssertionError(f"the job never ends: {outcome}")


statuses = st.integers(400, 499).filter(lambda status: status not in (401, 402, 403, 408, 429))


@given(message=st.sampled_from(WORDINGS) | st.text(), status=statuses, doubtful=st.booleans())
def test_a_form_that_is_rejected_in_any_words_fails_no_job(
    message: str, status: int, *, doubtful: bool
) -> None:
    server = Server(PermanentFailure(message, status, doubtful=doubtful), "response_format")
    provider = AdaptingProvider("c", server, CLOCK, logs=False)
    outcome, attempts = job(provider, ask(), attempts=1)
    assert (type(outcome), attempts) == (Success, 1)
    assert isinstance(outcome, Success)
    assert outcome.left_out == ("response_format",)
    assert len(server.sent) == 2
    others = calls(provider, *(ask(str(row)) for row in range(9)))
    assert all(isinstance(each, Success) for each in others)
    assert sum("response_format" in params for params in server.sent) == 1


@given(message=st.sampled_from(WORDINGS) | st.text(), broken=st.sampled_from([ServerError, InvalidResponse]))
def test_a_form_that_breaks_a_server_fails_no_job(
    message: str, broken: type[ServerError | InvalidResponse]
) -> None:
    server = Server(broken(message, 500), "response_format")
    provider = AdaptingProvider("c", server, CLOCK, logs=False)
    ends = [job(provider, ask(str(row)), attempts=1) for row in range(20)]
    assert [(type(outcome), attempts) for outcome, attempts in ends] == [(Success, 1)] * 20
    assert sum("response_format" in params for params in server.sent) == 2, "one more call decides"


def test_a_tool_is_tried_like_a_form() -> None:
    server = Server(PermanentFailure("no", 404), "tools", "tool_choice")
    provider = AdaptingProvider("c", server, CLOCK)
    request = ask(optional=frozenset({*TOOL, "stream"}), **TOOL)
    with capture_logs() as logs:
        first, second = calls(provider, request, request)
    assert isinstance(first, UnsupportedParameter)
    assert isinstance(second, Success)
    assert second.left_out == ("tool_choice", "tools")
    assert [(line["parameter"], line["reason"]) for line in logs] == [("tool_choice", "404 no")]


def test_a_form_that_the_run_asks_for_itself_is_kept() -> None:
    server = Server(PermanentFailure("no", 400), "response_format")
    provider = AdaptingProvider("c", server, CLOCK)
    own = ask(optional=frozenset({"stream"}))
    calls(provider, ask(), ask())
    assert [type(each) for each in calls(provider, own, own)] == [PermanentFailure] * 2
    assert all("response_format" in params for params in server.sent[2:])


@pytest.mark.parametrize(
    "failure",
    [
        *(PermanentFailure("no", status) for status in (None, 200, 401, 402, 403, 408, 429)),
        *(AccessDenied("no", 402), RateLimited("slow"), Overloaded("busy", 503)),
        *(NetworkFailure("reset"), TimedOut("late", 504), FlawedAnswer("no text", 200)),
    ],
    ids=repr,
)
def test_any_other_failure_starts_no_trial(failure: Outcome) -> None:
    provider = AdaptingProvider("c", Server(failure, "response_format"), CLOCK)
    assert calls(provider, ask(), ask()) == [failure, failure]


def test_a_rejection_for_another_reason_costs_one_more_call_for_all_rows() -> None:
    class Absent(Server):
        async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
            await super().call(request)
            return PermanentFailure(f"no such model (request req_{len(self.sent)}a1)", 404)

    server = Absent(Success(""))
    provider = AdaptingProvider("c", server, CLOCK)
    ends = [job(provider, ask(str(row))) for row in range(20)]
    assert [(type(outcome), attempts) for outcome, attempts in ends] == [(PermanentFailure, 1)] * 20
    assert len(server.sent) == 21


def test_once_a_model_has_answered_with_the_form_failures_count_for_an_hour() -> None:
    said = PermanentFailure("too long", 400)
    server = Server(said)
    provider, clock = AdaptingProvider("c", server, CLOCK), CLOCK
    assert isinstance(calls(provider, ask())[0], Success)
    server.lacks = ("response_format",)
    assert calls(provider, ask(), ask("b")) == [said, said]
    clock.advance(KEPT_MS / 1000)
    assert [type(each) for each in calls(provider, ask(), ask())] == [UnsupportedParameter, Success]


def test_what_a_model_lacks_is_asked_for_again_after_an_hour() -> None:
    server = Server(PermanentFailure("no", 400), "response_format")
    provider = AdaptingProvider("c", server, CLOCK)
    calls(provider, ask(), ask())
    CLOCK.advance(KEPT_MS / 1000)
    server.lacks = ()
    calls(provider, ask())
    assert "response_format" in server.sent[-1]


def test_an_answer_in_one_form_says_nothing_of_another_form() -> None:
    class NoMinimum(Server):
        async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
            outcome = await super().call(request)
            return self.said if "minimum" in str(request.params) else outcome

    provider = AdaptingProvider("c", NoMinimum(PermanentFailure("Unimplemented keys", 400)), CLOCK)
    plain = ask(response_format={"type": "json_schema", "json_schema": {}})
    assert [type(each) for each in calls(provider, plain, ask(), ask(), plain)] == [
        *(Success, UnsupportedParameter, Success, Success)
    ]


def test_an_outage_costs_no_attempt_and_is_shown_to_the_lane() -> None:
    down = ServerError("HTTP 500 without a message", 500, retry_after_ms=2000)
    server = Server(down, otherwise=down)
    provider = AdaptingProvider("c", server, CLOCK)
    server.lacks = ("response_format",)
    outcomes = calls(provider, *(ask(str(row)) for row in range(30)))
    made = [decide(each, Claim(0, 0, 0), RetryPolicy(), random.Random(0)) for each in outcomes]
    assert {each.feedback.signal for each in made} == {"server_error"}, "each failure counts for the circuit"
    assert {each.cost for each in made if isinstance(each, Defer)} == {"nothing", "unproven"}
    assert [each.feedback.retry_after_ms for each in made] == [2000] * 30
    server.lacks, server.otherwise = (), Success("yes")
    after = calls(provider, *(ask(str(row)) for row in range(30)))
    assert [isinstance(each, Success) and each.left_out for each in after] == [
        ("response_format",),
        *[()] * 29,
    ], "one answer without the form, and then one with it decides"


def test_a_row_that_no_server_can_serve_fails_as_ever() -> None:
    class Poison(Server):
        async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
            outcome = await super().call(request)
            return self.said if "poison" in str(request.messages) else outcome

    server = Poison(ServerError("boom", 500))
    provider = AdaptingProvider("c", server, CLOCK)
    poisoned, _ = job(provider, ask("poison"))
    assert poisoned == server.said
    assert calls(provider, ask(), ask("b")) == [Success("yes", left_out=("response_format",)), Success("yes")]
    before = len(server.sent)
    assert job(provider, ask("poison")) == (server.said, 3)
    assert len(server.sent) == before + 3


def test_a_call_that_is_broken_off_decides_nothing() -> None:
    class Hanging(Server):
        hangs = False

        def __init__(self) -> None:
            super().__init__(ServerError("boom", 500), "response_format")
            self.hung = asyncio.Event()

        async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
            outcome = await super().call(request)
            if self.hangs:
                self.hung.set()
                await asyncio.Event().wait()
            return outcome

    async def scene() -> None:
        for text in ("a", "b"):
            await provider.call(ask(text))
        server.hangs = True
        task = asyncio.ensure_future(provider.call(ask("c")))
        await server.hung.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.hangs = False
        await provider.call(ask("d"))

    server = Hanging()
    provider = AdaptingProvider("c", server, CLOCK, logs=False)
    asyncio.run(scene())
    assert ["response_format" in params for params in server.sent] == [True, False, True, True]


names = st.sampled_from("abcdef")
said = st.sampled_from(
    [
        *(Success("yes"), PermanentFailure("x", 400), PermanentFailure("y", 404), ServerError("z", 500)),
        *(InvalidResponse("cut", 200), RateLimited("slow"), FlawedAnswer("none", 200), TimedOut("late")),
    ]
)


@given(st.lists(st.tuples(names, said), max_size=60))
def test_whatever_a_server_says_at_most_two_calls_of_a_job_in_a_row_are_free(
    script: list[tuple[str, Outcome]],
) -> None:
    """One that may be the form's fault, and one that decides it for all."""

    class Scripted(Server):
        async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
            self.sent.append(request.params)
            return step[1]

    provider = AdaptingProvider("c", Scripted(Success("")), CLOCK, logs=False)
    free: dict[str, int] = {}
    for step in script:
        text, said_now = step
        (outcome,) = calls(provider, ask(text))
        if isinstance(outcome, UnsupportedParameter):
            free[text] = free.get(text, 0) + 1
            assert free[text] <= 2
            assert outcome.failure == said_now
        else:
            free[text] = 0
            without = isinstance(outcome, Success) and outcome.left_out == ("response_format",)
            assert without or outcome == said_now
