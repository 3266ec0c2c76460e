from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fairlane.client.submitting import submission
from fairlane.client.submitting.submission import bounded_pages, build_spec
from fairlane.client.submitting.trial import check_connections
from fairlane.core.errors import SubmissionError
from fairlane.model.choices import START_TIME_VERSION, TURN_FIELDS_VERSION, Message
from fairlane.model.decision import RetryPolicy
from fairlane.model.evaluators import ExactMatch, Judge
from fairlane.model.run import Order, RunSpec
from fairlane.pipeline.rendering import operator_parameter

JUDGE = Judge(name="judge", model="sim:judge", template="{{ output }}", choices={"yes": 1, "no": 0})
ASK = {"role": "user", "content": "{{ question }}"}


def spec_of(**arguments: Any) -> RunSpec:
    given: dict[str, Any] = {"prompt": "{{ question }}", "model": "sim:fast"}
    if arguments.keys() & {"messages", "prompts"}:
        del given["prompt"]
    if "models" in arguments:
        del given["model"]
    return build_spec("r1", "search", 1, **given | arguments)


def test_content_in_parts_is_led_to_the_rows_own_request() -> None:
    parts = [{"type": "image_url", "image_url": {"url": "{{ image }}"}}]
    with pytest.raises(SubmissionError, match="that field as request="):
        spec_of(messages=[{"role": "user", "content": parts}])


def test_a_prompt_is_one_user_message() -> None:
    assert spec_of(prompt="Q: {{ question }}").prompts == (
        (Message(role="user", content="Q: {{ question }}"),),
    )


def test_prompts_may_be_texts_and_chats() -> None:
    chat = [{"role": "system", "content": "Be brief."}, ASK]
    assert [[m.role for m in prompt] for prompt in spec_of(prompts=["hello", chat]).prompts] == [
        ["user"],
        ["system", "user"],
    ]


def test_messages_are_one_prompt() -> None:
    assert len(spec_of(messages=[ASK, ASK]).prompts) == 1


def test_a_run_without_a_name_is_named_by_its_id() -> None:
    assert spec_of().name == "r1"
    assert spec_of(name="gsm8k").name == "gsm8k"


def test_parameters_are_copied_as_json() -> None:
    params: dict[str, Any] = {"stop": ("a", "b"), "max_tokens": 5}
    spec = spec_of(params=params)
    params["max_tokens"] = 6
    assert spec.params == {"stop": ["a", "b"], "max_tokens": 5}


def is_no_secret(name: str) -> bool:
    """Whether a run may set this parameter: names of secrets are rejected."""
    return operator_parameter({name: None}) is None


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])).map("x{}".format).filter(is_no_secret),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
            max_leaves=5,
        ),
        max_size=3,
    )
)
def test_what_is_json_arrives_as_it_was_given(params: dict[str, Any]) -> None:
    assert spec_of(params=params).params == params


GIVEN = {"model": None, "prompt": None, "output": "answer", "evaluators": [JUDGE]}


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"prompt": None}, "prompt", "exactly one of prompt, messages, prompts or request"),
        ({"prompt": "a", "messages": [ASK]}, "prompt and messages", "more than one"),
        ({"prompt": 3}, "prompt", "int, not a text"),
        ({"prompt": [{"role": "user", "content": "x"}]}, "prompt", "chat as messages="),
        ({"prompt": "  "}, "prompt", "is empty"),
        ({"prompt": "Q: {{ question"}, "prompt", "line 1"),
        ({"prompt": "\ud800"}, "prompts", "surrogates"),
        ({"name": "\ud800"}, "name", "Give a text"),
        ({"name": "\x1b]0;pwned\x07"}, "name", "control character"),
        ({"name": "a\nb"}, "name", "control character"),
        ({"name": "\u202egnp"}, "name", "control character"),
        ({"messages": ASK}, "messages", "Give a list of messages"),
        ({"messages": []}, "messages", "has no messages"),
        ({"messages": [ASK, {"role": "user"}]}, "messages[1].content", "Field required"),
        ({"messages": [{"role": "user", "content": [1]}]}, "messages[0].content", "valid string"),
        ({"messages": [ASK | {"nam": "x"}]}, "messages[0].nam", "not permitted"),
        ({"messages": [{"role": "user", "content": "{% if %}"}]}, "messages[0].content", "line 1"),
        ({"messages": ["hello"]}, "messages[0]", "is no message"),
        ({"prompts": "hello"}, "prompts", "Give a list of prompts"),
        ({"prompts": []}, "prompts", "Give 1 to 100 prompts"),
        ({"prompts": ["a", ""]}, "prompts[1]", "is empty"),
        ({"prompts": ["a", [ASK, {"role": "", "content": "x"}]]}, "prompts[1][1].role", "A message is"),
        ({"model": None}, "model", "exactly one of model, models, task or output"),
        ({"model": ["sim:fast", "sim:slow"]}, "model", "Give several models as models=[…]."),
        ({"model": "gpt-4o"}, "model", '"<connection>:<model>"'),
        ({"model": ":gpt"}, "model", "names no connection"),
        ({"model": "sim:{{ lane"}, "model", "no template"),
        ({"models": ["sim:fast", "slow"]}, "models[1]", "names no connection"),
        ({"models": []}, "models", "Give 1 to 100 models"),
        ({"models": "sim:fast"}, "models", "Give a list of models"),
        ({"params": [1]}, "params", "is not a dict"),
        ({"params": {"seed": math.nan}}, "params['seed']", "is not JSON"),
        ({"params": {"user": object()}}, "params['user']", "is not JSON"),
        ({"params": {"user": "\ud800"}}, "params['user']", "is not JSON"),
        ({"params": {1: 2}}, "params", "no text"),
        ({"params": {"stream": True}}, "params['stream']", "Set stream on the connection"),
        ({"repetitions": 0}, "repetitions", "whole number from 1"),
        ({"repetitions": 1.5}, "repetitions", "whole number from 1"),
        ({"repetitions": True}, "repetitions", "whole number from 1"),
        ({"priority": 101}, "priority", "-100 (last)"),
        ({"timeout": 0}, "timeout", "more than 0"),
        ({"timeout": math.nan}, "timeout", "more than 0"),
        ({"timeout": "120"}, "timeout", "Give seconds"),
        ({"name": "x" * 201}, "name", "at most 200"),
        ({"retry": {"max_attempts": 3}}, "retry", "RetryPolicy"),
        ({"evaluators": JUDGE}, "evaluators", "Give a list of evaluators"),
        ({"evaluators": ["exact_match"]}, "evaluators[0]", "Use exact_match(…)"),
        ({"evaluators": [JUDGE, JUDGE]}, "evaluators", "have this name"),
        *(
            (GIVEN | {name: value}, name, "has no effect beside output")
            for name, value in (("prompt", "Q"), ("messages", [ASK]), ("request", "r"), ("lane", "l"))
        ),
        (GIVEN | {"params": {"max_tokens": 1}}, "params", "has no effect beside output"),
        ({"model": None, "task": "a:b", "request": "r"}, "request", "has no effect beside task"),
    ],
)
def test_a_wrong_argument_is_named_with_its_remedy(arguments: dict[str, Any], field: str, said: str) -> None:
    with pytest.raises(SubmissionError) as raised:
        spec_of(**arguments)
    assert raised.value.field == field
    assert said in str(raised.value)
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"model": "judge"}, "evaluators['judge'].model"),
        ({"model": "sim:{{ judge }}"}, "evaluators['judge'].model"),
        ({"template": "{{ output"}, "evaluators['judge'].template"),
        ({"params": {"model": "x"}}, "evaluators['judge'].params['model']"),
        ({"choices": {"yes": math.inf}}, "evaluators[0].llm_judge.choices.yes"),
    ],
)
def test_a_wrong_judge_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(SubmissionError) as raised:
        spec_of(evaluators=[JUDGE.model_copy(update=change)])
    assert raised.value.field == field


def test_a_start_that_earlier_schedulers_would_ignore_raises_the_specs_version() -> None:
    assert spec_of().version == 1
    later = spec_of(start_in=5)
    assert (later.version, later.bounds.start_ms) == (START_TIME_VERSION, later.submitted_ms + 5000)


TALK = "{% for turn in _conversation %}{{ turn.output }}{% endfor %}{{ question }}"


@pytest.mark.parametrize(
    ("options", "serial", "turns", "alone"),
    [
        ({}, False, True, True),
        ({"repetitions": 2}, False, True, False),
        ({"conversation": "who"}, False, True, False),
        ({"conversation": "who", "run_serially": True}, True, False, True),
        ({"conversation": "who", "run_serially": "first"}, True, False, True),
        ({"conversation": "who", "store_output_as": "x"}, True, False, True),
        ({"prompt": "{{ question }}", "session": "who"}, False, False, False),
    ],
)
def test_conversations_go_side_by_side_unless_all_items_are_ordered(
    options: dict[str, Any], serial: bool, turns: bool, alone: bool
) -> None:
    spec = spec_of(**{"prompt": TALK} | options)
    assert (spec.order.serial, spec.order.turns, spec.one_at_a_time) == (serial, turns, alone)
    talks = spec.order.conversation
    assert spec.version == (TURN_FIELDS_VERSION if talks else 1), "earlier processes keep turns in one field"
    assert spec.order.turn_fields == ("output",)


def test_a_later_start_lowers_no_version() -> None:
    spec = spec_of(prompt=TALK, start_in=5)
    assert (spec.version, spec.admitted.version) == (TURN_FIELDS_VERSION, TURN_FIELDS_VERSION)


@pytest.mark.parametrize("other", [{"serial": True}, {"serial_field": "first"}, {"store_output_as": "x"}])
def test_a_run_has_one_order(other: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="orders all items already"):
        Order(turns=True, conversation=True, **other)


def test_evaluators_and_retry_travel_unchanged() -> None:
    match = ExactMatch(name="exact_match", expected="answer")
    spec = spec_of(evaluators=[match, JUDGE], retry=RetryPolicy(max_attempts=5))
    assert spec.evaluators == (match, JUDGE)
    assert spec.retry.max_attempts == 5


def test_an_unknown_connection_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(SubmissionError, match="Did you mean 'openai'") as raised:
        check_connections(spec_of(models=["sim:fast", "opnai:gpt-4o"]), {"sim", "openai"})
    assert raised.value.field == "models[1]"


def test_a_judge_on_an_unknown_connection_is_refused() -> None:
    with pytest.raises(SubmissionError, match="Known connections: openai") as raised:
        check_connections(spec_of(model="openai:x", evaluators=[JUDGE]), {"openai"})
    assert raised.value.field == "evaluators['judge'].model"


def test_a_connection_that_a_row_names_is_left_to_the_scheduler() -> None:
    check_connections(spec_of(model="{{ connection }}:fast"), set())


def test_a_template_for_the_model_alone_has_its_connection_checked() -> None:
    with pytest.raises(SubmissionError, match="None is configured"):
        check_connections(spec_of(model="sim:{{ lane }}"), set())


def test_a_dataset_with_too_many_jobs_is_stopped_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submission, "MAX_JOBS", 10)
    taken: list[list[int]] = []
    pages = ([row] * 2 for row in range(100))
    with pytest.raises(SubmissionError, match="Split it"):
        taken.extend(bounded_pages(pages, spec_of(repetitions=2)))
    assert len(taken) == 2


def test_a_run_without_a_prompt_is_told_of_requests() -> None:
    with pytest.raises(SubmissionError, match=r"prompt: is missing.* prompts or request\."):
        build_spec("r1", "search", 1, model="sim:m")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("team", "a client submits for its own team: Client(team=…)"),
        ("run", "Fairlane names the run"),
        ("modell", "did you mean 'model'?"),
        ("temperature", "give it as params={'temperature': …}"),
        ("max_tokens", "give it as params={'max_tokens': …}"),
        ("max_retries", "give retry=RetryPolicy(max_attempts=…)"),
    ],
)
def test_an_argument_that_submit_does_not_take_says_where_it_belongs(name: str, hint: str) -> None:
    given: Any = {name: "a"}
    with pytest.raises(TypeError) as raised:
        build_spec("r1", "search", 1, prompt="x", model="sim:m", **given)
    assert str(raised.value) == f"submit() got an unexpected keyword argument {name!r}; {hint}"
