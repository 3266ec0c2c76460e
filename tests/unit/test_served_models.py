"""A run keeps the names of the models that answered, where they are not those that it asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.choices import Message
from fairlane.model.outcome import Outcome, Success
from fairlane.model.run import Order, RunRef
from fairlane.store.keys import served_field, served_models
from fairlane.store.read.reading import RunReader
from fairlane_workers.execution import served_models as serving
from fairlane_workers.providers.contract import Request
from tests.support.played_runs import played
from tests.support.worker_parts import WorkerParts, on_loop


def served_by(*names: str | None) -> Callable[[Request], Outcome]:
    told = iter(names)
    return lambda request: Success("yes", model=next(told))


def kept(parts: WorkerParts, run: str = "r1") -> dict[str, tuple[str, ...]]:
    return RunReader(parts.scheduler.redis, parts.keys).served(RunRef("search", run))


@given(st.text(), st.text())
def test_any_two_names_are_read_as_they_were_written(asked: str, served: str) -> None:
    try:
        field = served_field(asked, served).encode()
    except UnicodeEncodeError:
        return
    assert served_models(field) == (asked, served)
    assert served_models(b"register:" + field) is None


def test_each_other_name_is_kept_once_and_the_one_that_was_asked_for_is_not() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = served_by("fast", "fast-0806", None, "fast-0513", "fast-0806")
        await played(parts, parts.scheduler.admit(5))
        assert kept(parts) == {"sim:fast": ("fast-0513", "fast-0806")}

    on_loop(scene)


def test_judges_are_named_and_a_run_whose_models_have_one_name_keeps_nothing() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = served_by("fast", "judge-2026", "fast", "judge")
        await played(parts, parts.scheduler.admit(1, judges=["sim:judge"]))
        await played(parts, parts.scheduler.admit(1, judges=["sim:judge"], run="r2"))
        assert (kept(parts), kept(parts, "r2")) == ({"sim:judge": ("judge-2026",)}, {})

    on_loop(scene)


def test_a_provider_that_makes_names_up_fills_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_NAMES", 3)

    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = served_by(*(f"{n}" * 10_000 for n in range(8)))
        await played(parts, parts.scheduler.admit(8))
        (names,) = kept(parts).values()
        assert [len(name) for name in names] == [serving.MOST_CHARS] * 3

    on_loop(scene)


def test_names_that_many_workers_add_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_NAMES", 1000)  # as if each of many workers added a few

    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = served_by(*(f"v{n:03}" for n in (*range(80), 0)))
        await played(parts, parts.scheduler.admit(81))
        assert kept(parts) == {"sim:fast": tuple(f"v{n:03}" for n in range(64))}

    on_loop(scene)


def test_a_conversation_reads_no_names_of_models() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = served_by("v1", "v2", "v3")
        prompt = "{{ q }}{% for turn in _conversation %} {{ turn.output }}{% endfor %}"
        order = Order(serial=True, conversation=True)
        talk = ((Message(role="user", content=prompt),),)
        await played(parts, parts.scheduler.admit([{"q": 1}] * 3, order=order, prompts=talk))
        asked = [request.messages[-1]["content"] for request in parts.provider.requests]
        assert asked == ["1", "1 yes", "1 yes yes"]
        assert kept(parts) == {"sim:fast": ("v1", "v2", "v3")}
        turns = parts.keys.memory(RunRef("search", "r1"))
        assert not parts.scheduler.redis.exists(turns), "its records have the outputs"

    on_loop(scene)
