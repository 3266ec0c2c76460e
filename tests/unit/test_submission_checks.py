"""What is noticed about a submission before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis import Redis

from fairlane import (
    Reference,
    SubmissionError,
    contains,
    exact_match,
    llm_judge,
    numeric_match,
    similarity,
)
from fairlane.client.client import Client
from fairlane.client.submitting.continuation import rows_of
from fairlane.client.submitting.parameters import check_params
from fairlane.client.submitting.trial import FIRST_ROWS
from fairlane.config.settings import Settings
from fairlane.core.version import __version__
from fairlane.evaluators.builders import agent
from fairlane.model.evaluators import Criterion, Judge
from fairlane.model.run import RunSpec
from fairlane.store.write.workers import WorkerInfo, Workers
from fairlane_workers.providers.dialect import Dialect, UnmappableError
from fairlane_workers.providers.registry import load_protocol
from tests.support.classified import HTTP_PROTOCOLS, connection_of, dialect_of
from tests.support.command_line import CommandLine
from tests.support.provider_calls import ask
from tests.support.stage import Stage

ROWS = [{"question": "1 + 1?", "answer": "2"}, {"question": "2 + 2?", "answer": "4"}]


def submit(stage: Stage, rows: Any = None, prompt: str = "{{ question }}", **options: Any) -> Any:
    return stage.client.submit(ROWS if rows is None else rows, prompt, **{"model": "sim:fast"} | options)


def refused(
    stage: Stage, rows: Any = None, prompt: Any = "{{ question }}", **options: Any
) -> SubmissionError:
    """The error of a submission that leaves nothing behind."""
    before = set(stage.redis.keys("*"))
    with pytest.raises(SubmissionError) as caught:
        submit(stage, rows, prompt, **options)
    assert set(stage.redis.keys("*")) == before
    return caught.value


@pytest.mark.parametrize(
    ("options", "field", "words"),
    [
        ({"prompt": "{{ qestion }}"}, "prompt", "Did you mean 'question'? The rows have question, answer."),
        ({"prompt": "{{ x }}"}, "prompt", "none of the 2 rows has a field of this name"),
        ({"prompt": "{{ question / 2 }}"}, "prompt", "cannot be rendered with any of the 2 rows"),
        ({"prompts": ["{{ question }}", "{{ anser }}"], "prompt": None}, "prompts[1]", "'answer'"),
        ({"model": "sim:{{ lane }}"}, "model", "The rows have question, answer"),
        ({"evaluators": [exact_match("anwser")]}, "evaluators['exact_match'].expected", "'answer'"),
        ({"evaluators": [contains("anwser")]}, "evaluators['contains'].expected", "'answer'"),
        ({"evaluators": [numeric_match("sum")]}, "evaluators['numeric_match'].expected", "question, answer"),
        (
            {"evaluators": [llm_judge("sim:judge", "{{ output }} {{ anser }}", {"yes": 1})]},
            "evaluators['llm_judge'].template",
            "'answer'",
        ),
        (
            {
                "evaluators": [
                    agent(
                        "a", "sim:judge", "{{ anser }} {{ criterion }}", [Criterion(id="c", description="d")]
                    )
                ]
            },
            "evaluators['a'].template",
            "'answer'",
        ),
        (
            {"output": "outptu", "prompt": None, "model": None, "evaluators": [exact_match("answer")]},
            "output",
            "",
        ),
        ({"rows": []}, "dataset", "has no rows"),
    ],
)
def test_a_field_that_no_row_has_is_reported_with_the_one_that_was_meant(
    stage: Stage, options: dict[str, Any], field: str, words: str
) -> None:
    error = refused(stage, **options)
    assert error.field == field
    assert words in str(error)


def test_what_some_rows_have_or_a_template_can_do_without_is_no_mistake(stage: Stage) -> None:
    rows = [{"question": "1"}, {"other": "2"}]
    submit(stage, rows)
    submit(stage, rows, "{{ hint | default('none') }} {% if more is defined %}{{ more }}{% endif %}")
    submit(
        stage, ROWS, "{{ answer }}", evaluators=[llm_judge("sim:judge", "{{ (output | int) / 0 }}", {"y": 1})]
    )
    submit(stage, ROWS, "{% for turn in _conversation %}{{ turn.output }}{% endfor %}{{ question }}")
    submit(stage, [], check=False)
    submit(stage, ROWS, "{{ missing }}", check=False)


@pytest.mark.parametrize("prompt", ["{{ row.question }}", "{{ row['row'] }}", "{{ first-name }}"])
def test_a_field_named_row_hides_the_whole_row_and_is_to_be_renamed(stage: Stage, prompt: str) -> None:
    rows = [{"row": "a", "question": "1", "first-name": "x"}, {"row": "b", "question": "2"}]
    error = refused(stage, rows, prompt)
    assert (error.field, error.value) == ("prompt", prompt)
    assert "Rename" in error.remedy
    assert "The rows have" not in str(error)
    submit(stage, rows, "{{ row }}: {{ question }}")


def test_no_more_rows_are_held_than_are_tried_and_all_arrive(stage: Stage) -> None:
    read: list[int] = []

    def rows() -> Iterator[dict[str, Any]]:
        for number in range(FIRST_ROWS * 3):
            read.append(number)
            yield {"question": str(number)}

    assert submit(stage, rows()).status().items == len(read) == FIRST_ROWS * 3


def test_a_judge_of_some_rows_is_tried_on_those_alone(stage: Stage) -> None:
    text = "{{ rubric }}: {{ output }}"
    judge = Judge(name="j", model="sim:judge", template=text, choices={"yes": 1}, when="rubric")
    submit(stage, evaluators=[judge])
    rows = [*ROWS, {"question": "3", "rubric": "polite"}]
    submit(stage, rows, evaluators=[judge])
    wrong = judge.model_copy(update={"template": "{{ rubrik }}"})
    assert "'rubric'" in str(refused(stage, rows, evaluators=[wrong]))


@pytest.mark.parametrize(
    ("evaluator", "options", "name"),
    [
        (llm_judge("sim:judge", "Is {{ answer }} right?", {"yes": 1}), {}, "output"),
        (llm_judge("sim:judge", "Is it right?", {"yes": 1}), {}, "output"),
        (llm_judge("sim:judge", "{{ row | tojson }}", {"yes": 1}), {}, "output"),
        (agent("a", "sim:judge", "{{ criteria }}", [Criterion(id="c", description="d")]), {}, "output"),
        (llm_judge("sim:judge", "Good?", {"yes": 1}, level="session"), {"session": "question"}, "session"),
    ],
)
def test_a_judge_that_does_not_see_what_it_judges_is_reported(
    stage: Stage, evaluator: Any, options: dict[str, Any], name: str
) -> None:
    error = refused(stage, ROWS, evaluators=[evaluator], **options)
    assert f"does not show the {name} that it judges" in str(error)
    assert f"Put {{{{ {name} }}}} into it" in str(error)
    submit(stage, ROWS, evaluators=[evaluator], check=False, **options)


@pytest.mark.parametrize("text", ["{{ answer }}", "{{ row | tojson }}", "{{ output }}"])
def test_a_judge_of_outputs_that_were_there_may_name_their_field(stage: Stage, text: str) -> None:
    judge = llm_judge("sim:judge", text, {"yes": 1})
    stage.client.submit(ROWS, output="answer", evaluators=[judge])


@pytest.mark.parametrize("text", ["{% if output %}{{ output }}{% endif %}", "{% set x = output %}{{ x }}"])
def test_a_judge_may_use_the_output_anywhere(stage: Stage, text: str) -> None:
    submit(stage, ROWS, evaluators=[llm_judge("sim:judge", text, {"yes": 1})])


def test_a_single_row_is_called_so(stage: Stage) -> None:
    error = refused(stage, [{"question": "1", "answer": None}], evaluators=[exact_match("answer")])
    assert "the only row has no value in this field" in str(error)


@pytest.mark.parametrize("answer", ["2", "2,5"])
@pytest.mark.parametrize(("mark", "word"), [(";", "semicolon"), ("\t", "tab"), ("|", "bar")])
def test_a_table_that_is_separated_otherwise_is_reported(
    stage: Stage, tmp_path: Path, mark: str, word: str, answer: str
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(f"question{mark}answer\n1 + 1?{mark}{answer}\n")
    assert re.search(f"single column.*{word}.*the separator", str(refused(stage, table)))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"max_token": 5}, "Did you mean 'max_tokens'?"),
        ({"temperture": 0.5}, "Did you mean 'temperature'?"),
        ({"temperature": 5}, "from 0 to 2"),
        ({"temperature": "hot"}, "from 0 to 2"),
        ({"max_tokens": 0}, "a whole number, 1 or more"),
        ({"max_tokens": "64"}, "a whole number, 1 or more"),
        ({"top_p": 7}, "from 0 to 1"),
        ({"n": 4}, "repetitions= (--repetitions)"),
        ({"logprobs": True}, "no record keeps"),
        ({"logprobs": 3}, "a function of yours (task=)"),
        ({"n": 5}, "a function of yours (task=) may return all"),
        ({"extra_body": {"guided_json": {}}}, "Give its entries beside the other parameters"),
        ({"response_format": RunSpec}, "run.parsed(Model)"),
        ({"top_logprobs": 5}, "no record keeps"),
        ({"candidateCount": 2}, "repetitions= (--repetitions)"),
        ({"best_of": 3}, "repetitions= (--repetitions)"),
        ({"modalities": ["text", "audio"]}, "that keeps texts"),
        ({"responseModalities": ["TEXT", "IMAGE"]}, "that keeps texts"),
        ({"modalities": "audio"}, "that keeps texts"),
    ],
)
def test_a_parameter_that_no_provider_takes_or_no_record_keeps_is_reported(
    stage: Stage, params: dict[str, Any], words: str
) -> None:
    error = refused(stage, params=params)
    assert error.field == f"params[{next(iter(params))!r}]"
    assert words in str(error)
    judge = llm_judge("sim:judge", "{{ output }}", {"yes": 1}, params=params)
    assert refused(stage, evaluators=[judge]).field.startswith("evaluators['llm_judge'].params")


def test_googles_own_form_asks_for_one_answer_too(stage: Stage) -> None:
    error = refused(stage, params={"generationConfig": {"candidateCount": 4, "maxOutputTokens": 5}})
    assert error.field == "params['generationConfig']['candidateCount']"
    error = refused(stage, params={"generationConfig": {"responseModalities": ["IMAGE"]}})
    assert error.field == "params['generationConfig']['responseModalities']"
    submit(stage, params={"generationConfig": {"candidateCount": 1}})


def test_a_request_of_a_row_asks_for_one_answer_too(stage: Stage) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    rows = [{"body": {**body, "n": 1}}, {"body": {**body, "n": 3}}, {"body": None}]
    with pytest.raises(SubmissionError, match="keeps texts"):
        stage.client.submit([{"body": {**body, "modalities": ["audio"]}}], request="body", model="sim:fast")
    with pytest.raises(SubmissionError, match="repetitions=") as caught:
        stage.client.submit(rows, request="body", model="sim:fast")
    assert (caught.value.field, caught.value.row) == ("body['n']", 2)
    stage.client.submit(rows[:1], request="body", model="sim:fast")
    stage.client.submit(rows, request="body", model="sim:fast", check=False)


def test_parameters_of_some_provider_or_of_a_function_pass(stage: Stage) -> None:
    submit(stage, params={"n": 1, "logprobs": False, "top_logprobs": 0})
    submit(stage, params={"n": None, "logprobs": None, "modalities": None})
    submit(stage, params={"modalities": ["text"], "responseModalities": ["TEXT"]})
    submit(stage, params={"modalities": ["audio"]}, check=False)
    submit(stage, params={"n": 4, "logprobs": True}, check=False)
    submit(
        stage,
        params={"my_own": 1, "top_k": 40, "min_p": 0.1, "max_tokens": 5, "temperature": 0, "seed": None},
    )
    stage.client.submit(ROWS, task="tasks:answer", params={"max_token": 5})
    submit(stage, params={"max_token": 5}, check=False)


def publish(stage: Stage, **connection: Any) -> None:
    known = {"sim": {"protocol": "openai", "scope": "model", "lanes": "sim"} | connection}
    stage.redis.set(stage.keys.catalog, json.dumps({"connections": known}))


OPENAIS: dict[str, list[Any]] = {
    **{name: [0, 0.5] for name in ("frequency_penalty", "presence_penalty")},
    **{name: [7] for name in ("seed", "top_k", "max_output_tokens")},
    **{name: [{"a": 1}] for name in ("prediction", "audio", "web_search_options", "function_call")},
    **{"logit_bias": [{}, {"5": 1}], "store": [False, True], "functions": [[{"name": "f"}]]},
    **{"n": [1], "logprobs": [False], "top_logprobs": [0], "modalities": [["text"]]},
    **{"stop": ["x"], "stop_sequences": [["x"]], "verbosity": ["low"], "min_p": [0.1]},
    **{"repetition_penalty": [1.1], "user": ["u"], "response_format": [{"type": "json_object"}]},
}
"""Parameters that some protocols lack, with values that some of them need not send."""


@pytest.mark.parametrize("protocol", HTTP_PROTOCOLS)
@pytest.mark.parametrize(
    "params",
    [
        *(
            {"reasoning_effort": effort}
            for effort in ("none", "minimal", "low", "high", "xhigh", "max", None)
        ),
        *({"parallel_tool_calls": each} for each in (True, False, None)),
        *({name: value} for name, values in OPENAIS.items() for value in values),
    ],
    ids=str,
)
def test_what_a_protocol_cannot_say_is_refused_at_submission(
    stage: Stage, protocol: str, params: dict[str, Any]
) -> None:
    publish(stage, protocol=protocol)
    judged = llm_judge("sim:judge", "{{ output }}", {"yes": 1, "no": 0}, params=params)
    try:
        dialect_of(connection_of(protocol)).body(ask(**params))
    except UnmappableError:
        (name,) = params
        assert refused(stage, params=params).field == f"params[{name!r}]"
        assert refused(stage, evaluators=[judged]).field == f"evaluators['llm_judge'].params[{name!r}]"
        submit(stage, params=params, check=False)
    else:
        submit(stage, params=params, evaluators=[judged])


def test_a_parameter_that_no_template_of_an_endpoint_sends_is_refused_at_submission(stage: Stage) -> None:
    endpoint = {"body": {"q": "{{ prompt }}", "t": "{{ params.temperature }}"}, "output": "text"}
    own = {"protocol": "http", "base_url": "http://localhost:9", "auth": "none", "endpoint": endpoint}
    settings = Settings.model_validate(
        {"redis": {"deployment": "test"}, "team": "search", "connections": {"own": own}}
    )
    client = Client(settings=settings, redis=stage.redis, clock=stage.clock, waiter=stage)
    client.submit(ROWS, "{{ question }}", model="own:m", params={"temperature": 0})
    with pytest.raises(SubmissionError, match="no template of its endpoint has it") as refused:
        client.submit(ROWS, "{{ question }}", model="own:m", params={"temperature": 0, "max_tokens": 5})
    assert (refused.value.field, refused.value.value) == ("params['max_tokens']", 5)
    assert '"{{ params.max_tokens }}"' in refused.value.remedy


@pytest.mark.parametrize("protocol", [*HTTP_PROTOCOLS, "litellm"])
def test_similarity_needs_a_connection_that_makes_embeddings(stage: Stage, protocol: str) -> None:
    publish(stage, protocol=protocol)
    evaluator = similarity("sim:embed", "answer")
    if protocol != "litellm" and dialect_class(protocol).embeddings_of(connection_of(protocol)):
        submit(stage, evaluators=[evaluator])
        return
    error = refused(stage, evaluators=[evaluator])
    assert error.field == "evaluators['similarity'].model"
    assert f"{protocol!r} make no embeddings" in str(error)
    submit(stage, evaluators=[evaluator], check=False)


def dialect_class(protocol: str) -> type[Dialect]:
    return cast("type[Dialect]", load_protocol("protocol", protocol))


@pytest.mark.parametrize(
    ("model", "rows"), [("sim:fats", ROWS), ("sim:{{ m }}", [{"question": "", "m": "fats"}] * 2)]
)
def test_a_model_that_its_connection_does_not_list_is_reported(stage: Stage, model: str, rows: Any) -> None:
    publish(stage, models=["fast", "gpt-*"])
    error = str(refused(stage, rows, model=model))
    assert re.search("does not list this model.*sim:fats.*Did you mean 'fast'", error)


def test_a_listed_model_and_a_pattern_of_models_pass(stage: Stage) -> None:
    publish(stage, models=["fast", "gpt-*"])
    submit(stage)
    submit(stage, model="sim:gpt-5")
    submit(stage, [{"question": "", "m": "fats"}, {"question": "", "m": "fast"}], model="sim:{{ m }}")


def beat(stage: Stage, name: str, version: str = __version__, **credentials: str) -> None:
    info = WorkerInfo(name, 10, (), version, 1, "host", 0, credentials=credentials)
    Workers(stage.keys).beat(name, info, (), 1000, changed=False).run(stage.redis)


def test_a_connection_whose_key_no_worker_has_is_reported(stage: Stage) -> None:
    publish(stage, key=True)
    beat(stage, "w1")
    beat(stage, "w2", other="00")
    error = str(refused(stage))
    assert re.search("no worker has the key of 'sim'.*Set the variable .* where workers start", error)


def test_a_connection_that_workers_lack_is_named_and_not_its_key(stage: Stage) -> None:
    publish(stage, key=True)
    info = WorkerInfo("w1", 10, (), __version__, 1, "host", 0, connections=("another",))
    Workers(stage.keys).beat("w1", info, (), 1000, changed=False).run(stage.redis)
    error = str(refused(stage))
    assert "none has a connection 'sim'" in error
    assert "key" not in error
    beat(stage, "w2", sim="00")
    submit(stage)


def test_a_connection_that_no_worker_can_use_says_why(stage: Stage) -> None:
    publish(stage, key=True)
    info = WorkerInfo(
        "w1", 10, (), __version__, 1, "host", 0, connections=("sim",), unusable={"sim": "no CA"}
    )
    Workers(stage.keys).beat("w1", info, (), 1000, changed=False).run(stage.redis)
    assert "w1 cannot use sim: no CA" in str(refused(stage))


def test_where_a_worker_has_the_key_or_may_have_it_the_run_is_submitted(stage: Stage) -> None:
    publish(stage, key=True)
    submit(stage)  # no worker yet
    beat(stage, "w1", version="0.0.1")  # does not report credentials
    submit(stage)
    beat(stage, "w2", sim="00")
    submit(stage)
    publish(stage)
    submit(stage)


def test_the_command_line_says_the_same(real_redis: Redis, tmp_path: Path, stage: Stage) -> None:
    cli = CommandLine(real_redis)
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(map(json.dumps, ROWS)))
    ask = ("submit", str(rows), "--model", "sim:fast", "--prompt", "{{ qestion }}")
    said = cli.refused(*ask, code=2)
    assert "Did you mean 'question'?" in said
    assert cli.json("runs") == []
    assert cli(*ask, "--no-check").exit_code == 0


def test_parameters_are_checked_without_a_deployment(stage: Stage) -> None:
    run, _ = stage.client._split("x", {"model": "sim:fast", "params": {"max_tokens": 1}})
    check_params(run)


def states(stage: Stage) -> list[str]:
    stage.admit()
    return [str(status.state) for status in stage.client.runs()]


def test_the_first_rows_of_a_stream_are_tried_before_one_is_sent(stage: Stage) -> None:
    with (
        pytest.raises(SubmissionError, match="Did you mean 'question'"),
        stage.client.open("{{ qestion }}", model="sim:fast") as writer,
    ):
        writer.extend(ROWS)
    assert stage.client.run(writer.run.id).status().items == 0
    assert states(stage) == ["cancelled"]


def test_a_stream_learns_at_its_hundredth_row(stage: Stage) -> None:
    writer = stage.client.open("{{ question }}", model="sim:fast", evaluators=[exact_match("anwser")])
    writer.extend(ROWS * (FIRST_ROWS // 2 - 1))
    writer.write(ROWS[0])
    with pytest.raises(SubmissionError, match="'answer'"):
        writer.write(ROWS[1])
    assert states(stage) == ["cancelled"]


def test_a_stream_that_suits_its_run_or_is_not_checked_goes_through(stage: Stage) -> None:
    for check, prompt, rows in (
        (True, "{{ question }}", ROWS),
        (False, "{{ other }}", ROWS),
        (True, "x", []),
    ):
        with stage.client.open(prompt, model="sim:fast", check=check) as writer:
            writer.extend(rows)


@pytest.mark.parametrize("form", ["jsonl", "json", "csv"])
def test_a_dataset_by_reference_is_tried_where_its_file_is_here(
    stage: Stage, tmp_path: Path, form: str
) -> None:
    path = tmp_path / f"rows.{form}"
    written = {
        "jsonl": "\n".join(map(json.dumps, ROWS)),
        "json": json.dumps(ROWS),
        "csv": "question,answer\n1,2\n",
    }
    path.write_text(written[form])
    for given in (Reference(path), Reference(f"file://{path}")):
        assert "Did you mean 'question'" in str(refused(stage, given, "{{ qestion }}"))
        submit(stage, given)
        submit(stage, given, "{{ qestion }}", check=False)
    path.write_text({"jsonl": "", "json": "[]", "csv": "question\n"}[form])
    assert "has no rows" in str(refused(stage, Reference(path)))


def test_a_reference_to_elsewhere_is_left_to_the_scheduler(stage: Stage, tmp_path: Path) -> None:
    for url in ("s3://bucket/rows.jsonl", "https://127.0.0.1:1/rows.jsonl", str(tmp_path / "not-here.jsonl")):
        submit(stage, Reference(url), "{{ qestion }}")


def continued(stage: Stage, dataset: Any = None, **options: Any) -> Any:
    """A run that continues one of which every item succeeded."""
    run = submit(stage)
    stage.admit()
    stage.answer(run.id, len(ROWS))
    before = len(stage.client.runs())
    try:
        return stage.client.continue_run(run.id, dataset, **options)
    except SubmissionError:
        stage.admit()
        assert len(stage.client.runs()) == before
        raise


def test_what_is_new_in_a_continued_run_is_checked(stage: Stage) -> None:
    continued(stage)
    continued(stage, [*ROWS, {"question": "3"}], evaluators=[exact_match("answer")])
    for mistake, words in (
        ({"evaluators": [exact_match("anwser")]}, "Did you mean 'answer'"),
        ({"dataset": [{"qestion": "1"}]}, "Did you mean 'qestion'"),
        ({"dataset": []}, "has no rows"),
        ({"evaluators": [llm_judge("sim:judge", "{{ anser }}", {"y": 1})]}, "Did you mean 'answer'"),
    ):
        with pytest.raises(SubmissionError, match=words):
            continued(stage, **mistake)
        continued(stage, **mistake, check=False)


def test_a_continued_run_reads_a_reference_again_or_says_why_not(stage: Stage, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, ROWS)))
    run = submit(stage, Reference(path))
    spec = run._spec.model_copy(update={"rows": 2})
    assert list(rows_of(stage.client._deployment, spec, 2)) == ROWS
    path.unlink()
    with pytest.raises(SubmissionError, match="there is no such file"):
        list(rows_of(stage.client._deployment, spec, 2))
