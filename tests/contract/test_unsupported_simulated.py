"""Workers and the simulated provider agree on how each protocol rejects a parameter, a prompt and a form."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fairlane.evaluators.embeddings import read_embeddings
from fairlane.evaluators.judge import read_verdict
from fairlane.evaluators.rubrics import tool_of, verdict_format
from fairlane.model.outcome import Outcome, PermanentFailure, Success, UnsupportedParameter
from fairlane.testing import ManualClock, SimulatorConfig, serve_in_thread
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.unsupported.adapting import AdaptingProvider
from tests.support.provider_calls import KEY, ask, every_protocol, provider_of, streamed_or_not
from tests.support.wires import WIRES, Wire
from tests.support.wires.azure_openai import AzureOpenAIWire
from tests.support.wires.openai_chat import OpenAIChatWire

FORM = verdict_format(["yes", "no"], reasons=True)
UNFIT = ("http", "replicate")
"""Protocols whose parameters are the endpoint's or the model's own."""

structured = pytest.mark.parametrize(
    "wire", [wire for wire in WIRES if wire.protocol not in UNFIT], ids=lambda wire: wire.protocol
)


def outcomes(wire: Wire, requests: Sequence[Request], **model: Any) -> list[Outcome]:
    settings = {"latency_ms": 1.0, "output": "judge", **model}
    config = SimulatorConfig.model_validate({"models": {"m-1": settings}, "api_key": KEY})
    with serve_in_thread(config) as served:

        async def scenario() -> list[Outcome]:
            async with provider_of(wire, served.url) as provider:
                adapting = AdaptingProvider("c", provider, ManualClock())
                return [await adapting.call(request) for request in requests]

        return asyncio.run(scenario())


@structured
@streamed_or_not
def test_a_reasoning_model_is_called_without_what_it_rejects(wire: Wire, stream: bool) -> None:
    request = ask(stream=stream, temperature=0, max_tokens=64)
    *rejected, answered = outcomes(wire, [request] * 3, reasoning=True)
    assert isinstance(answered, Success)
    assert answered.left_out == ("temperature",)
    kinds = [type(each) for each in rejected]
    bounded = wire.protocol in ("openai", "azure_openai")
    assert kinds == [UnsupportedParameter, UnsupportedParameter if bounded else Success]


@structured
def test_a_form_is_left_out_for_a_model_without_structured_output(wire: Wire) -> None:
    added = Request(
        "m-1",
        ask().messages,
        {"response_format": FORM},
        False,
        5.0,
        1 << 20,
        optional=frozenset({"response_format"}),
    )
    learned, answered = outcomes(wire, [added, added], rejects=("response_format",))
    assert isinstance(learned, UnsupportedParameter), learned
    assert isinstance(answered, Success)
    assert (answered.output, answered.left_out) == ("no", ("response_format",))


@pytest.mark.parametrize(
    "wire",
    [wire for wire in WIRES if wire.protocol not in (*UNFIT, "ollama")],  # Ollama forces no tool
    ids=lambda wire: wire.protocol,
)
def test_a_judge_answers_by_a_tool(wire: Wire) -> None:
    (outcome,) = outcomes(wire, [ask(**tool_of(FORM))])
    assert isinstance(outcome, Success)
    verdict = read_verdict(outcome.output, {"yes": 1.0, "no": 0.0})
    assert (verdict.score.value, verdict.said) == (0.0, "The answer is not what was asked for.")


@structured
@streamed_or_not
def test_a_judge_answers_in_the_form_of_every_protocol(wire: Wire, stream: bool) -> None:
    (outcome,) = outcomes(wire, [ask(stream=stream, response_format=FORM)])
    assert isinstance(outcome, Success)
    assert '"choice": "no"' in outcome.output


@every_protocol
@streamed_or_not
def test_a_refusal_in_the_models_words_is_an_output_and_a_filters_a_failure(wire: Wire, stream: bool) -> None:
    form = {} if wire.protocol in UNFIT else {"response_format": FORM}
    (outcome,) = outcomes(wire, [ask(stream=stream, **form)], refusals=1.0)
    if wire.protocol in (*UNFIT, "ollama"):
        assert isinstance(outcome, Success)
        assert outcome.output.startswith("I'm sorry")
    elif wire.protocol in ("openai", "openai_responses", "azure_openai"):
        assert isinstance(outcome, Success)
        assert outcome.output.startswith("I'm sorry")
        assert outcome.finish_reason == "refusal"
    else:
        assert isinstance(outcome, PermanentFailure)


@pytest.mark.parametrize("wire", [OpenAIChatWire(), AzureOpenAIWire()], ids=["openai", "azure_openai"])
@streamed_or_not
def test_of_several_answers_the_first_counts_and_all_are_paid(wire: Wire, stream: bool) -> None:
    one, several = outcomes(wire, [ask(stream=stream), ask(stream=stream, n=3)], output="text")
    assert isinstance(one, Success)
    assert isinstance(several, Success)
    assert several.output == one.output
    assert several.usage.output_tokens == 3 * (one.usage.output_tokens or 0)


def test_azure_makes_the_embeddings_of_openai() -> None:
    request = Request("m-1", [], {}, False, 5.0, 1 << 20, inputs=("the cat sat", "income tax"))
    openai, azure = (outcomes(wire, [request])[0] for wire in (OpenAIChatWire(), AzureOpenAIWire()))
    assert isinstance(openai, Success)
    assert isinstance(azure, Success)
    assert read_embeddings(openai.output) == read_embeddings(azure.output)
