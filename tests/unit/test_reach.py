"""A run reaches what its operator configured and nothing else: no address, header, key, file or module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from fairlane.core.errors import FunctionNotFound, SubmissionError, TemplateError, UnknownModel
from fairlane.evaluators.builders import llm_judge
from fairlane.model.choices import Message, Source
from fairlane.model.evaluators import FunctionScorer, Judge
from fairlane.model.run import Cell, Plan, RunRef, RunSpec
from fairlane.pipeline.rendering import OPERATORS_OWN, Rendering
from fairlane_scheduler.intake.admission import check_source
from fairlane_workers.functions.catalog import ImportedFunctions
from tests.support.provider_calls import (
    KEY,
    ask,
    call,
    every_protocol,
    streamed_or_not,
)
from tests.support.scheduler_parts import Parts
from tests.support.scripted_server import Fault
from tests.support.stage import Stage
from tests.support.wires import Wire

ELSEWHERE = "http://elsewhere.invalid/v1"
SMUGGLED: dict[str, Any] = {
    "base_url": ELSEWHERE,
    "api_base": ELSEWHERE,
    "extra_headers": {"authorization": "Bearer mine", "x-team": "admin"},
    "headers": {"host": "elsewhere.invalid"},
    "extra_body": {"base_url": ELSEWHERE},
    "extra_query": {"key": "mine"},
    "api_key": "sk-mine",
    "Authorization": "Bearer mine",
    "X-API-Key": "sk-mine",
    "proxies": {"http": ELSEWHERE},
    "model": "another",
}
NAMES = sorted(set(SMUGGLED) - {"model"})
FIRST = Cell(0, 0, 0, 0)
URLS = [
    "http://elsewhere.invalid/v1:m",
    "https://elsewhere.invalid:443/v1:m",
    "//elsewhere.invalid:m",
    "file:///x:m",
]


def spec_of(**fields: Any) -> RunSpec:
    message = Message(role="user", content="{{ q }}")
    base: dict[str, Any] = {
        "run": "r",
        "team": "t",
        "name": "r",
        "prompts": ((message,),),
        "models": ("sim:m",),
    }
    return RunSpec.model_validate(base | {"rows": 1, "page_rows": 1, "submitted_ms": 0} | fields)


@every_protocol
@streamed_or_not
@pytest.mark.slow
def test_whatever_the_parameters_are_a_call_goes_where_its_connection_says(wire: Wire, stream: bool) -> None:
    _, server = call(wire, ask(stream, **SMUGGLED), [Fault.CLOSE])
    _, plain = call(wire, ask(stream), [Fault.CLOSE])
    (usual,) = plain.received
    if wire.protocol == "http":
        assert server.received == []  # its templates send none of them
        return
    (received,) = server.received
    assert received.path == usual.path
    assert received.headers.keys() == usual.headers.keys()
    assert KEY in received.headers[wire.key_header]
    assert wire.asked(received).model == "m-1"
    for name in ("authorization", "x-api-key", "host"):
        assert "mine" not in received.headers.get(name, "")
        assert "elsewhere" not in received.headers.get(name, "")


@pytest.mark.parametrize("name", NAMES)
def test_parameters_that_say_where_a_call_goes_are_refused_before_anything_is_written(
    real_redis: Redis, name: str
) -> None:
    client = Stage(real_redis).client
    before = real_redis.dbsize()
    judge = llm_judge("sim:judge", "{{ output }}", choices={"y": 1.0}, params={name: SMUGGLED[name]})
    with pytest.raises(SubmissionError, match="connections") as refused:
        client.submit([{"q": 1}], "{{ q }}", model="sim:fast", params={name: SMUGGLED[name]})
    with pytest.raises(SubmissionError, match="connections"):
        client.submit([{"q": 1}], "{{ q }}", model="sim:fast", evaluators=[judge])
    assert real_redis.dbsize() == before
    assert "mine" not in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_the_scheduler_refuses_them_of_a_client_that_does_not(name: str) -> None:
    params = {name: SMUGGLED[name]}
    judge = Judge(name="j", model="sim:m", template="", choices={"y": 1.0}, params=params)
    for fields in ({"params": params}, {"evaluators": (judge,)}):
        with pytest.raises(TemplateError, match="the operator configures connections"):
            Rendering(Plan(spec=spec_of(**fields)))


@pytest.mark.parametrize("name", NAMES)
def test_a_row_s_own_request_says_none_of_it_either(name: str) -> None:
    rendering = Rendering(Plan(spec=spec_of(prompts=(), request_field="body")))
    body = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "model": "other:m"}
    asked = rendering.task(FIRST, {"body": body})
    assert (asked.model, asked.params) == ("sim:m", {"temperature": 0})
    with pytest.raises(TemplateError, match="which connections alone say"):
        rendering.task(FIRST, {"body": body | {name: SMUGGLED[name]}})


def test_a_function_s_parameters_are_its_own() -> None:
    spec = spec_of(models=("python:mine.module:f",), params={"base_url": "x", "headers": {}})
    call = Rendering(Plan(spec=spec)).task(FIRST, {"q": 1})
    assert call.arguments is not None
    assert call.arguments["params"] == {"base_url": "x", "headers": {}}


def test_what_providers_take_is_not_refused() -> None:
    usual = (
        "temperature",
        "max_tokens",
        "max_completion_tokens",
        "logit_bias",
        "response_format",
        "metadata",
    )
    more = (
        "tools",
        "stop",
        "seed",
        "top_p",
        "user",
        "thinking",
        "token_ids",
        "service_tier",
        "stream_options",
    )
    assert not OPERATORS_OWN & {*usual, *more}
    Rendering(Plan(spec=spec_of(params=dict.fromkeys((*usual, *more), 1))))


@pytest.mark.parametrize("model", URLS)
def test_a_model_that_is_an_address_names_no_connection(parts: Parts, model: str) -> None:
    with pytest.raises(UnknownModel):
        parts.registry.lane_of(model)
    run = parts.admit([{"m": model}], model="{{ m }}")
    parts.feed_all()
    (state,) = {json.loads(each)["s"] for each in parts.redis.hvals(parts.keys.results(run.ref))}
    assert state == "invalid"


@pytest.mark.parametrize(
    "name", ["system", "os:system;x", "../os:system", "os:system()", "/x.py:f", "os:", ""]
)
def test_what_is_no_function_s_name_is_no_scorer(name: str) -> None:
    with pytest.raises(ValueError, match="function"):
        FunctionScorer.model_validate({"name": "f", "function": name})


@pytest.mark.parametrize(
    "name", ["os:system", "subprocess:run", "builtins:eval", "fairlane.store.connection.connect:open_redis"]
)
def test_a_function_outside_the_allowed_modules_is_not_found(name: str) -> None:
    with pytest.raises(FunctionNotFound, match=r"is not in worker\.modules"):
        ImportedFunctions(["tests.support.user_functions"]).find(name)


@pytest.mark.parametrize(
    "url",
    [
        "/secret/rows.jsonl",
        "{place}/../secret/rows.jsonl",
        "//secret{place}/rows.jsonl",
        "{place}?/../../secret",
        "{place}#/../../secret",
        "file://{place}/../secret",
        "{place}-of-others/rows.jsonl",
        "https://other.invalid/data/rows.jsonl",
        "https://host.invalid/data-of-others/rows.jsonl",
        "https://host.invalid/data/../secret/rows.jsonl",
        "https://host.invalid/data/%2e%2e/secret/rows.jsonl",
        "https://host.invalid/data/..%2fsecret/rows.jsonl",
        "https://host.invalid@other.invalid/data/rows.jsonl",
        "simplecache::https://other.invalid/rows.jsonl",
        "zip://rows.jsonl::https://host.invalid/data/a.zip",
    ],
)
def test_a_dataset_lies_where_the_operator_says_however_it_is_spelled(tmp_path: Path, url: str) -> None:
    places = (str(tmp_path), "https://host.invalid/data")
    source = Source(url=url.replace("{place}", str(tmp_path)), format="jsonl")
    with pytest.raises(ValueError, match="does not lie where"):
        check_source(spec_of(source=source, open=True), places)


@pytest.mark.parametrize(
    "url",
    ["{place}/a/rows.jsonl", "file://{place}/r.csv", "https://host.invalid/data/r.csv", "{place}/#1?.csv"],
)
def test_a_dataset_that_lies_there_is_read(tmp_path: Path, url: str) -> None:
    source = Source(url=url.replace("{place}", str(tmp_path)), format="csv")
    check_source(spec_of(source=source, open=True), (str(tmp_path), "https://host.invalid/data/"))


BOMBS = [
    "{% for a in [1] * 100000 %}{{ row.big[1:] }}{% endfor %}",
    "{{ row.big }}{{ row.big }}",
    "{{ 'a' * 10**9 }}",
]


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.timeout(20)
def test_every_template_of_a_run_keeps_the_limits(bomb: str) -> None:
    judge = Judge(name="j", model="sim:m", template=bomb, choices={"y": 1.0})
    session = judge.model_copy(update={"level": "session"})
    row = {"big": "x" * 900_000, "q": 1}
    whole = [{"row": row, "output": "a"}]
    spec = spec_of(evaluators=(judge,), order={"store_output_as": bomb, "serial": True})
    rendering = Rendering(Plan(spec=spec))
    prompt = Rendering(Plan(spec=spec_of(prompts=((Message(role="user", content=bomb),),))))
    model = Rendering(Plan(spec=spec_of(models=(bomb,))))
    of_session = Rendering(Plan(spec=spec_of(evaluators=(session,), session_field="s", sessions=1)))
    renders = [
        lambda: prompt.task(FIRST, row),
        lambda: model.model(FIRST, row),
        lambda: rendering.evaluation(spec.evals[0], row, "a"),
        lambda: rendering.register(row),
        lambda: of_session.session(of_session.spec.session_evals[0], whole),
    ]
    for render in renders:
        with pytest.raises(TemplateError):
            render()


def test_a_team_s_name_in_a_spec_cannot_reach_into_another_s(parts: Parts) -> None:
    assert parts.upload(parts.spec(1), [{"q": 1}]) == RunRef("search", "r1")
    with pytest.raises(ValueError, match="team"):
        spec_of(team="search:run:r1:spec")
