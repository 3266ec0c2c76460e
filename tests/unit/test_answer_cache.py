"""The cache answers for the server that was asked, with what can be used, and never for functions."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.lane_identity import server_digests
from fairlane.model.choices import Message
from fairlane.model.evaluators import FunctionScorer, Judge
from fairlane.model.outcome import Outcome, Success
from fairlane.model.run import CacheChoice
from fairlane.model.tokens import Usage
from fairlane.pipeline.rendering import Call
from fairlane_workers.providers.contract import Request
from tests.support.played_runs import continued, played
from tests.support.worker_parts import WorkerParts, on_loop

CACHED = CacheChoice(mode="read_write")
PLAIN = {"protocol": "openai", "base_url": "https://one.example.com/v1"}
DECIDES: dict[str, list[Any]] = {
    "protocol": ["openai_responses", "anthropic"],
    "base_url": [
        "https://two.example.com/v1",
        "https://one.example.com:8443/v1",
        "https://one.example.com/v2",
    ],
    "region": ["us-east-1", "eu-west-1"],
    "project": ["one", "two"],
    "api_version": ["2025-01-01", "2026-01-01"],
    "headers": [{"x-tier": "a"}, {"x-tier": "b"}],
    "reasoning_tags": [False],
}
OF_NO_ACCOUNT: dict[str, list[Any]] = {
    "base_url": ["https://One.example.com:443/v1/"],
    "connect_timeout": [1.0, 2.0],
    "stream": [True, False],
    "api_key_env": ["KEY", "OTHER_KEY"],
    "proxy": ["http://proxy.example.com"],
    "lane_scope": ["model", "connection"],
    "error_map": [{"429": "overloaded"}],
}


def choices(table: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(each) for name, each in table.items()})


def server(**more: Any) -> str:
    return server_digests({"c": Connection.model_validate(PLAIN | more)})["c"]


def judge(choices: dict[str, float], name: str = "j") -> Judge:
    return Judge(name=name, model="sim:judge", template="{{ output }}", choices=choices)


def says(**by_model: str | list[str]) -> Any:
    """Answers by model, the last one again and again."""
    left = {name: [said] if isinstance(said, str) else list(said) for name, said in by_model.items()}

    def answer(request: Request) -> Outcome:
        said = left[request.model]
        return Success(said.pop(0) if len(said) > 1 else said[0], finish_reason="stop")

    return answer


def calls(parts: WorkerParts) -> int:
    return len(parts.provider.requests)


@given(choices(DECIDES), choices(DECIDES))
def test_connections_are_one_server_if_nothing_that_decides_differs(one: Any, other: Any) -> None:
    assert (server(**one) == server(**other)) == (PLAIN | one == PLAIN | other)


@given(choices(DECIDES), choices(OF_NO_ACCOUNT))
def test_what_does_not_change_an_answer_keeps_the_server(one: Any, more: Any) -> None:
    if "base_url" in one:
        more = {name: value for name, value in more.items() if name != "base_url"}
    assert server(**one) == server(**(one | more))


@given(st.dictionaries(st.sampled_from(["c", "d"]), st.sampled_from(["s1", "s2"])))
def test_a_call_has_a_key_where_its_server_is_known_and_equal_calls_to_it_share_it(servers: Any) -> None:
    asked = [{"role": "user", "content": "q"}]
    found = {name for name in "cd" if Call(f"{name}:m", asked, {}).digest("", servers) is not None}
    assert found == set(servers)
    assert Call("python:f", [], {}, {"row": {}}).digest("", servers) is None


def test_an_equal_call_is_answered_by_the_cache_and_by_no_other_server() -> None:
    async def scene(parts: WorkerParts) -> None:
        ask = {"rows": [{"q": "same"}], "cache": CACHED, "judges": ["sim:judge"]}
        parts.provider.answer = says(fast="old", judge="yes")
        await played(parts, parts.scheduler.admit(**ask))
        (again,) = await played(parts, parts.scheduler.admit(run="r2", **ask))
        assert (again.output, again.cached, again.scores, calls(parts)) == ("old", True, {"judge0": 1.0}, 2)

        moved = Connection.model_validate(PLAIN)
        for servers in (parts.scheduler.registry.servers, parts.servers):
            servers.update(server_digests({"sim": moved}))
        parts.provider.answer = says(fast="new", judge="yes")
        (moved_to,) = await played(parts, parts.scheduler.admit(run="r3", **ask))
        assert (moved_to.output, moved_to.cached, calls(parts)) == ("new", False, 4)

    on_loop(scene)


def test_scores_of_functions_are_not_cached() -> None:
    async def scene(parts: WorkerParts) -> None:
        told = iter("12")
        parts.providers["python"].answer = lambda request: Success(next(told))
        scorer = FunctionScorer(name="s", function="m.f")
        for number in (1, 2):
            run = parts.scheduler.admit([{"q": 1}], run=f"r{number}", cache=CACHED, evaluators=(scorer,))
            (record,) = await played(parts, run)
            assert (record.cached, record.scores) == (number > 1, {"s": float(number)})

    on_loop(scene)


def test_outputs_of_functions_are_not_cached() -> None:
    async def scene(parts: WorkerParts) -> None:
        told = iter("12")
        parts.providers["python"].answer = lambda request: Success(next(told))
        for run in ("r1", "r2"):
            ask: dict[str, Any] = {"model": "python:m.f", "prompts": (), "cache": CACHED}
            (record,) = await played(parts, parts.scheduler.admit([{"q": 1}], run=run, **ask))
            assert (record.output, record.cached) == ({"r1": "1", "r2": "2"}[run], False)

    on_loop(scene)


@pytest.mark.parametrize(
    ("output", "reason", "kept"),
    [
        ("yes", "stop", True),
        ("yes", None, True),
        ("yes", "odd", True),
        ("", "stop", False),
        (" \n", "stop", False),
        ("The answer, after lengthy", "length", False),
        ("The answer, after lengthy", "MAX_TOKENS", False),
        ("I cannot help with that.", "refusal", False),
    ],
)
def test_an_answer_that_is_empty_or_cut_or_a_refusal_is_not_kept(
    output: str, reason: str | None, kept: bool
) -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = Success(output, finish_reason=reason)
        for run in ("r1", "r2"):
            (record,) = await played(parts, parts.scheduler.admit([{"q": "x"}], run=run, cache=CACHED))
        assert (record.cached, calls(parts)) == (kept, 1 if kept else 2)

    on_loop(scene)


def test_a_verdict_that_cannot_be_read_is_asked_for_again() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = says(fast="out", judge=["Hmm, hard to say.", "yes"])
        ask: dict[str, Any] = {"rows": [{"q": 1}], "cache": CACHED, "evaluators": (judge({"yes": 1.0}),)}
        (first,) = await played(parts, parts.scheduler.admit(**ask))
        assert first.scores == {"j": None}
        (second,) = await played(parts, parts.scheduler.admit(run="r2", **ask))
        assert (second.cached, second.scores, calls(parts)) == (True, {"j": 1.0}, 3)

    on_loop(scene)


def test_a_cached_verdict_that_other_choices_cannot_read_is_asked_for_again() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = says(fast="out", judge=["maybe", "yes"])
        ask: dict[str, Any] = {"rows": [{"q": 1}], "cache": CACHED}
        for run, evaluator, score in (("r1", judge({"maybe": 0.5}), 0.5), ("r2", judge({"yes": 1.0}), 1.0)):
            (record,) = await played(parts, parts.scheduler.admit(run=run, evaluators=(evaluator,), **ask))
            assert record.scores == {"j": score}

    on_loop(scene)


def test_what_failed_in_the_continued_run_is_not_read_from_the_cache() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = says(fast="out", judge=["no idea", "yes", "no"])
        choices = {"yes": 1.0, "no": 0.0}
        ask: dict[str, Any] = {"rows": [{"q": 1}], "cache": CACHED, "evaluators": (judge(choices),)}
        failed = parts.scheduler.admit(**ask)
        await played(parts, failed)
        await played(parts, parts.scheduler.admit(run="another", **ask))  # now the cache has "yes"
        (record,) = await played(parts, continued(parts, failed))
        assert (record.output, record.scores) == ("out", {"j": 0.0})

    on_loop(scene)


def drawn(seed: int) -> Any:
    """Answers as a sampling model gives them: any output of two, any verdict."""
    rng = random.Random(seed)

    def answer(request: Request) -> Outcome:
        said = ["yes", "no"] if request.model == "judge" else ["red", "blue"]
        return Success(rng.choice(said), Usage(3, 1), "stop")

    return answer


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 2), st.booleans(), st.booleans())
def test_a_second_run_repeats_every_output_and_every_score_of_the_first(
    seed: int, rows: int, repetitions: int, several: bool, same_texts: bool
) -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = drawn(seed)
        prompts = ["{{ q }}", "{{ q }}{{ more }}"] if several else ["{{ q }}"]
        ask: dict[str, Any] = {
            "rows": [{"q": "same", "more": "", "id": 0 if same_texts else n} | {"n": n} for n in range(rows)],
            "prompts": tuple((Message(role="user", content=text),) for text in prompts),
            "cache": CACHED,
            "repetitions": repetitions,
            "evaluators": tuple(judge({"yes": 1.0, "no": 0.0}, name) for name in "abc"),
        }
        first = await played(parts, parts.scheduler.admit(**ask))
        made = calls(parts)
        assert made == 4 * len(first), "each item is a sample of its own, and so is each judge's verdict"
        second = await played(parts, parts.scheduler.admit(run="r2", **ask))
        assert calls(parts) == made
        assert [(each.output, each.scores) for each in second] == [
            (each.output, each.scores) for each in first
        ]
        assert all(each.cached for each in second)

    on_loop(scene)


def test_what_a_run_adds_is_called_and_the_rest_comes_from_the_cache() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = drawn(1)
        ask: dict[str, Any] = {"cache": CACHED, "evaluators": (judge({"yes": 1.0, "no": 0.0}, "a"),)}
        first = await played(parts, parts.scheduler.admit([{"q": 1}, {"q": 2}], **ask))
        grown = ask | {
            "prompts": tuple((Message(role="user", content=text),) for text in ("{{ q }}?", "{{ q }}")),
            "evaluators": (judge({"yes": 1.0, "no": 0.0}, "b"), *ask["evaluators"]),
        }
        rows = [{"q": 0}, {"q": 2}, {"q": 1}]
        second = await played(parts, parts.scheduler.admit(rows, run="r2", **grown))
        kept = {record.row["q"]: record for record in second if record.cached}
        assert {q: (each.output, each.scores["a"]) for q, each in kept.items()} == {
            each.row["q"]: (each.output, each.scores["a"]) for each in first
        }
        # Of 12 jobs of tasks and of judge a, the first run had four; judge b is new.
        assert calls(parts) == 4 + (12 - 4) + 6

    on_loop(scene)
