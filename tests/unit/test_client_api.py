from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from redis import Redis

import fairlane
from fairlane import AsyncCallHandle, AsyncCallMap, AsyncClient, AsyncRun, CallHandle, CallMap, Client, Run
from fairlane.core import errors
from tests.support.stage import Stage


def test_every_name_in_all_exists() -> None:
    assert sorted(fairlane.__all__) == sorted(set(fairlane.__all__))
    assert [name for name in fairlane.__all__ if not hasattr(fairlane, name)] == []


def test_every_error_is_public() -> None:
    leaves = [name for name in vars(errors) if isinstance(getattr(errors, name), type)]
    assert {name for name in leaves if issubclass(getattr(errors, name), fairlane.FairlaneError)} <= set(
        fairlane.__all__
    )


def test_the_interface_as_it_is_promised(fake_redis: Redis, tmp_path: Path) -> None:
    stage = Stage(fake_redis)
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question": "2+2?", "answer": "answer 0"}\n{"question": "3+3?", "answer": "6"}\n')
    run = stage.client.submit(
        dataset=str(questions),
        prompt="Q: {{ question }}\nA:",
        model="sim:fast",
        params={"max_tokens": 64, "temperature": 0},
        repetitions=1,
        evaluators=[
            fairlane.exact_match(expected="answer"),
            fairlane.llm_judge(model="sim:judge", template="{{ output }}", choices={"yes": 1, "no": 0}),
        ],
        name="gsm8k",
        priority=0,
        timeout=120.0,
        retry=fairlane.RetryPolicy(max_attempts=3, initial_delay=1.0, max_delay=60.0),
    )
    stage.then(
        stage.admit,
        lambda: stage.answer(run.id, 2, scores={"exact_match": 1.0}),
        lambda: stage.judge(run.id, 2, score=0.0),
    )
    assert run.wait(progress=True, timeout=None).state is fairlane.RunState.COMPLETED
    record = next(run.results())
    assert (record.item, record.row, record.model, record.prompt, record.repetition) == (
        0,
        {"question": "2+2?", "answer": "answer 0"},
        "sim:fast",
        0,
        0,
    )
    assert (record.state, record.output, record.scores, record.attempts, record.error) == (
        fairlane.JobState.SUCCEEDED,
        "answer 0",
        {"exact_match": 1.0, "llm_judge": 0.0},
        1,
        None,
    )
    assert stage.client.run(run.id).status() == stage.client.runs()[0]


@pytest.mark.parametrize(
    ("dataset", "row"),
    [([{"question": "q"}, "no row"], 2), ([{"question": object()}], 1), ("missing.jsonl", None), (3, None)],
)
def test_a_wrong_dataset_is_named_with_its_row(fake_redis: Redis, dataset: object, row: int | None) -> None:
    stage = Stage(fake_redis)
    with pytest.raises(fairlane.SubmissionError) as raised:
        stage.client.submit(dataset, prompt="{{ question }}", model="sim:fast")  # type: ignore[arg-type]
    assert (raised.value.field, raised.value.row) == ("dataset", row)


def test_an_unknown_argument_is_a_type_error(fake_redis: Redis) -> None:
    with pytest.raises(TypeError, match="promt"):
        Stage(fake_redis).client.submit([], promt="x", model="sim:fast")  # type: ignore[call-arg]


def public_methods() -> list[Any]:
    handles = (Client, AsyncClient, Run, AsyncRun, CallHandle, CallMap, AsyncCallHandle, AsyncCallMap)
    return [
        pytest.param(method, id=f"{kind.__name__}.{name}")
        for kind in handles
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    ]


@pytest.mark.parametrize("method", public_methods())
def test_the_types_of_a_method_can_be_read_at_run_time(method: Any) -> None:
    assert "return" in get_type_hints(method)
