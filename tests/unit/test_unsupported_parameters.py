"""A parameter that a provider names as unsupported is left out of later calls to that model alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from fairlane.core.events import Event
from fairlane.model.decision import Defer, RetryPolicy, decide
from fairlane.model.job import Claim
from fairlane.model.outcome import Outcome, PermanentFailure, Success, UnsupportedParameter
from fairlane.testing import ManualClock
from fairlane_workers.providers.contract import OnChunk, Request
from fairlane_workers.providers.unsupported.adapting import (
    KEPT_MS,
    MOST_MODELS,
    MOST_OF_A_MODEL,
    AdaptingProvider,
)
from fairlane_workers.providers.unsupported.wording import Unsupported, read_unsupported

OPENAIS = "Unsupported parameter: '{0}' is not supported with this model."
NEWER = f"{OPENAIS.format('max_tokens')} Use 'max_completion_tokens' instead."
FORM = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": {}}}


@pytest.mark.parametrize(
    ("message", "name"),
    [
        (OPENAIS.format("top_p"), "top_p"),
        (
            "Unsupported value: 'temperature' does not support 0 with this model. "
            "Only the default (1) value is supported.",
            "temperature",
        ),
        ("`temperature` is deprecated for this model.", "temperature"),
        ("The model returned the following errors: temperature is deprecated for this model.", "temperature"),
        (r"{\"error\":{\"message\":\"`temperature` is deprecated for this model.\"}}", "temperature"),
        (
            "This model doesn't support the temperature field. Remove temperature and try again.",
            "temperature",
        ),
        ("Argument not supported on this model: presencePenalty", "presence_penalty"),
        ("Model grok-4.5 does not support parameter presencePenalty.", "presence_penalty"),
        ("seed: Extra inputs are not permitted", "seed"),
        ("invalid temperature: only 1 is allowed for this model", "temperature"),
        ("gpt-5 models don't support temperature=0. Only temperature=1 is supported.", "temperature"),
        ("openai does not support parameters: ['top_p'], for model=gpt-5", "top_p"),
        ("Unrecognized request argument supplied: top_k", "top_k"),
        ("Penalty is not enabled for this model", "presence_penalty"),
    ],
)
def test_the_words_of_providers_name_the_parameter(message: str, name: str) -> None:
    params = dict.fromkeys(("temperature", "top_p", "top_k", "seed", "presence_penalty"), 0)
    assert read_unsupported(message, params) == Unsupported(name)
    params.pop(name)
    assert read_unsupported(message, params) is None


@pytest.mark.parametrize(
    "message",
    [
        "temperature: a number from 0 to 2 is required",
        "`temperature` and `top_p` cannot both be specified for this model. Please use only one.",
        "Invalid 'temperature': decimal above maximum value.",
        "This model does not support image inputs.",
        "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model.",
        "'stop' is not supported with this model.",
        OPENAIS.format("tools"),
        OPENAIS.format("response_format"),
        "",
    ],
)
def test_any_other_rejection_stays_one(message: str) -> None:
    params = {"temperature": 5, "top_p": 1, "reasoning_effort": "minimal", "stop": "END", "tools": [], "x": 1}
    assert read_unsupported(message, {**params, "response_format": FORM}) is None


def test_one_value_that_is_unsupported_says_nothing_about_the_others() -> None:
    message = "Unsupported value: 'temperature' does not support 0.3 with this model. Supported: 0.5, 1."
    found = read_unsupported(message, {"temperature": 0.3})
    assert found == Unsupported("temperature", "0.3")
    assert not found.concerns({"temperature": 0.5})
    assert read_unsupported(message, {"temperature": "x" * 1000}) is None


def test_a_bound_is_sent_under_its_newer_name_and_never_left_out() -> None:
    found = read_unsupported(NEWER, {"max_tokens": 9})
    assert found == Unsupported("max_tokens", instead="max_completion_tokens")
    assert read_unsupported(OPENAIS.format("max_tokens"), {"max_tokens": 9}) is None


@pytest.mark.parametrize(
    ("message", "optional"),
    [
        (
            "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model.",
            True,
        ),
        ("This response_format type is unavailable now", True),
        ("This model does not support response format `json_schema`.", True),
        ("output_config.format is not supported for this model", True),
        ("Invalid schema for response_format 'verdict': In context=(), 'enum' is not supported.", False),
        ("messages: too long", False),
    ],
)
def test_a_form_is_optional_only_where_fairlane_added_it(message: str, optional: bool) -> None:
    params = {"response_format": FORM}
    found = read_unsupported(message, params, {"response_format"})
    assert found == (Unsupported("response_format") if optional else None)
    assert read_unsupported(message, params) is None


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("This model doesn't support tool use.", ["tools"]),
        ("`tool_choice` forces tool use, which is not supported with thinking", ["tool_choice"]),
        ("This model doesn't support the toolConfig.toolChoice.tool field. Remove it.", ["tool_choice"]),
    ],
)
def test_a_tool_is_optional_only_where_fairlane_added_it(message: str, names: list[str]) -> None:
    params = {"tools": [], "tool_choice": "auto"}
    found = read_unsupported(message, params, params.keys())
    assert [found and found.name] == names
    assert read_unsupported(message, params) is None


def test_without_its_tools_a_call_chooses_none() -> None:
    strict = Strict("tools")
    asked = ask(optional=frozenset({"tools", "tool_choice"}), tools=[], tool_choice="auto", seed=1)
    calls(strict, asked, asked)
    assert strict.sent[-1] == {"seed": 1}


class Strict:
    """A model that rejects parameters, in OpenAI's words, and answers with what it was sent."""

    def __init__(self, *rejected: str, status: int = 400) -> None:
        self.rejected, self.status = rejected, status
        self.sent: list[dict[str, Any]] = []

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        self.sent.append(request.params)
        for name in self.rejected:
            if name in request.params:
                message = NEWER if name == "max_tokens" else OPENAIS.format(name)
                return PermanentFailure(message, self.status)
        return Success("fine")

    async def prepare(self) -> None:
        """Nothing to load."""

    async def aclose(self) -> None:
        """Nothing to close."""


def ask(model: str = "m", optional: frozenset[str] = frozenset(), **params: Any) -> Request:
    return Request(model, [], params, False, 9.0, 999, optional=optional)


def calls(strict: Strict, *requests: Request, between: Callable[[], object] = bool) -> list[Outcome]:
    async def scene() -> list[Outcome]:
        outcomes = []
        for request in requests:
            outcomes.append(await provider.call(request))
            between()
        return outcomes

    provider = AdaptingProvider("c", strict, CLOCK)
    return asyncio.run(scene())


CLOCK = ManualClock()


def test_a_rejected_parameter_costs_one_call_and_is_left_out_of_the_next() -> None:
    strict = Strict("max_tokens", "temperature")
    request = ask(max_tokens=9, temperature=0, seed=1)
    with capture_logs() as logs:
        first, second, third = calls(strict, request, request, request)
    assert isinstance(first, UnsupportedParameter)
    assert isinstance(second, UnsupportedParameter)
    assert (first.parameter, second.parameter) == ("max_tokens", "temperature")
    assert isinstance(third, Success)
    assert third.left_out == ("temperature",)
    assert strict.sent[-1] == {"max_completion_tokens": 9, "seed": 1}
    assert request.params == {"max_tokens": 9, "temperature": 0, "seed": 1}
    shown = [line for line in logs if line["event"] == Event.PARAMETER_UNSUPPORTED]
    assert [(line["connection"], line["model"], line["parameter"]) for line in shown] == [
        ("c", "m", "max_tokens"),
        ("c", "m", "temperature"),
    ]


def test_the_job_of_a_rejected_parameter_is_called_again_at_no_cost() -> None:
    outcome = UnsupportedParameter("no temperature", 400, parameter="temperature")
    made = decide(outcome, Claim(2, 0, 0), RetryPolicy(max_attempts=3), random.Random(0))
    assert isinstance(made, Defer)
    assert (made.cost, made.delay_ms, made.feedback.signal, made.feedback.refusal) == (
        "nothing",
        0,
        "answered",
        "",
    )


def test_a_learned_unsupported_parameter_changes_nothing_else() -> None:
    strict = Strict("temperature")
    calls(
        strict, ask(temperature=0), ask(temperature=1, top_p=0.5), ask("other", temperature=1), ask(stop="x")
    )
    assert strict.sent[1:] == [{"top_p": 0.5}, {"temperature": 1}, {"stop": "x"}]


def test_a_form_that_a_run_asks_for_itself_is_still_sent() -> None:
    strict = Strict("response_format")
    optional = frozenset({"response_format"})
    added, own = ask(optional=optional, response_format=FORM), ask(response_format=FORM)
    learned, without, refused = calls(strict, added, added, own)
    assert isinstance(learned, UnsupportedParameter)
    assert isinstance(without, Success)
    assert isinstance(refused, PermanentFailure)
    assert strict.sent[1:] == [{}, {"response_format": FORM}]


@pytest.mark.parametrize("status", [401, 404, 413])
def test_only_a_rejection_of_the_request_teaches(status: int) -> None:
    (outcome,) = calls(Strict("temperature", status=status), ask(temperature=0))
    assert isinstance(outcome, PermanentFailure)


def test_a_rejection_of_what_was_not_sent_ends_the_call() -> None:
    class Stubborn(Strict):
        async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
            await super().call(request)
            return PermanentFailure(OPENAIS.format("temperature"), 400)

    first, second = calls(Stubborn(), ask(temperature=0), ask(temperature=0))
    assert isinstance(first, UnsupportedParameter)
    assert isinstance(second, PermanentFailure)


def test_what_is_learned_expires() -> None:
    strict = Strict("temperature")
    requests = [ask(temperature=0)] * 4
    outcomes = calls(strict, *requests, between=lambda: CLOCK.advance(KEPT_MS / 1000 / 2))
    assert [type(each) for each in outcomes] == [UnsupportedParameter, Success, UnsupportedParameter, Success]


def test_what_is_learned_is_bounded() -> None:
    class Fussy(Strict):
        async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
            value = request.params.get("seed")
            return PermanentFailure(
                f"Unsupported value: 'seed' does not support {value} with this model.", 400
            )

    provider = AdaptingProvider("c", Fussy(), CLOCK)

    async def scene() -> None:
        for number in range(3 * MOST_OF_A_MODEL):
            await provider.call(ask("m", seed=number))
        assert len(provider._of("m")) == MOST_OF_A_MODEL
        for number in range(MOST_MODELS + 9):
            await provider.call(ask(f"m{number}", seed=1))

    asyncio.run(scene())
    assert len(provider._known) == MOST_MODELS
    assert len(provider._of("m")) == 0
    asyncio.run(provider.call(ask("m300", seed=1)))
