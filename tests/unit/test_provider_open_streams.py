"""A stream that a server leaves open after its answer ends the call soon, with all that was counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from fairlane.model.outcome import InvalidResponse, Outcome, Success, TimedOut
from fairlane_workers.providers.http import reply_reader
from tests.support.provider_calls import ask, call, provider_of
from tests.support.scripted_server import Fault, Pause, chunk, http, scripted_server, stream_head
from tests.support.unhurried import UnhurriedLoop
from tests.support.wires import OpenAIChatWire

CHAT = OpenAIChatWire()
LONG_S = 60.0
USAGE = {"prompt_tokens": 3, "completion_tokens": 2}


def event(document: dict[str, Any]) -> bytes:
    return chunk(b"data: " + json.dumps(document).encode() + b"\n\n")


def delta(text: str | None = None, reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": reason}
    return event({"choices": [choice], **more})


def usage() -> bytes:
    return event({"choices": [], "usage": USAGE})


def outcome_of(*steps: bytes | float, timeout_s: float = LONG_S) -> Outcome:
    """The outcome of a stream that is left open after its last step; a number is a pause in seconds."""
    exchange = [step if isinstance(step, bytes) else Pause(step) for step in steps]
    script, loop = [stream_head(), *exchange, Fault.HANG], UnhurriedLoop()
    outcome, _ = call(CHAT, ask(stream=True, timeout_s=timeout_s), script, loop=loop)
    assert loop.time() < LONG_S / 2, "it waited for its deadline"
    return outcome


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_reader, "END_S", 0.1)
    monkeypatch.setattr(reply_reader, "USAGE_S", 1.0)


@pytest.mark.parametrize(
    "last",
    [
        [delta("lo", "stop"), usage()],
        [delta("lo"), delta(reason="stop", usage=USAGE)],
        [delta("lo", "stop"), 0.4, usage()],
    ],
    ids=["a chunk of its own", "beside the reason", "late"],
)
def test_an_answer_without_an_end_mark_is_complete_after_its_usage(
    last: Sequence[bytes | float],
) -> None:
    outcome = outcome_of(delta("hel"), *last)
    assert isinstance(outcome, Success), outcome
    assert (outcome.output, outcome.finish_reason) == ("hello", "stop")
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (3, 2)


def test_an_answer_without_usage_is_waited_for_a_little_longer() -> None:
    outcome = outcome_of(delta("hello", "stop"))
    assert isinstance(outcome, Success), outcome
    assert (outcome.output, outcome.usage.output_tokens) == ("hello", None)


def test_comments_that_keep_the_stream_alive_do_not_extend_it() -> None:
    beats: list[bytes | float] = [chunk(b": ping\n\n"), 0.05] * 100
    outcome = outcome_of(delta("hello", "stop"), usage(), *beats, delta("never"))
    assert isinstance(outcome, Success), outcome
    assert outcome.output == "hello"


def test_what_goes_on_after_a_finish_reason_is_part_of_the_answer() -> None:
    """Some servers name a reason in every chunk, and count in every chunk."""
    pieces: list[bytes | float] = []
    for text in "hello":
        pieces += [delta(text, "stop", usage=USAGE), 0.06]
    outcome = outcome_of(*pieces)
    assert isinstance(outcome, Success), outcome
    assert outcome.output == "hello"


def test_a_gateway_that_runs_the_tools_itself_may_take_its_time() -> None:
    tool = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}
    calling = event({"choices": [{"index": 0, "delta": {"tool_calls": [tool]}}]})
    done = chunk(b"data: [DONE]\n\n")
    outcome = outcome_of(calling, delta(reason="tool_calls", usage=USAGE), 0.5, delta("late", "stop"), done)
    assert isinstance(outcome, Success), outcome
    assert "late" in outcome.output


def test_a_stream_without_a_finish_reason_has_until_its_deadline() -> None:
    outcome = outcome_of(delta("hel"), usage(), 0.3, delta("lo"), timeout_s=0.8)
    assert isinstance(outcome, TimedOut)


def test_the_deadline_of_the_call_is_never_moved_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_reader, "END_S", LONG_S)
    monkeypatch.setattr(reply_reader, "USAGE_S", LONG_S)
    outcome = outcome_of(delta("hello", "stop"), usage(), timeout_s=0.3)
    assert isinstance(outcome, Success)


# Connections after unsound answers


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        ({"error": {"message": "CUDA error", "type": "server_error"}}, 2),
        ({"unheard": "of"}, 2),
        (CHAT.whole("fine"), 1),
    ],
    ids=["error", "unreadable", "sound"],
)
def test_an_error_inside_a_success_costs_its_connection(answer: dict[str, Any], connections: int) -> None:
    async def scenario() -> int:
        script = [[http(200, answer)], [http(200, CHAT.whole("fine"))]]
        async with scripted_server(script) as server, provider_of(CHAT, server.url) as provider:
            for _ in script:
                await provider.call(ask())
            return server.connections

    assert asyncio.run(scenario()) == connections


# JSON that is nearly so


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("raw", "text"),
    [(b"a\tb\nc\x01d", "a\tb\nc\x01d"), (b"caf\xe9", "caf\ufffd"), (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd")],
)
def test_raw_controls_and_foreign_bytes_within_strings_are_read(raw: bytes, text: str, stream: bool) -> None:
    body = json.dumps(CHAT.whole("@")).encode().replace(b'"@"', b'"' + raw + b'"')
    outcome, server = call(CHAT, ask(stream=stream), [http(200, body)])
    assert isinstance(outcome, Success), outcome
    assert outcome.output == text
    assert len(server.received) == 1


def test_a_body_that_is_cut_is_still_unreadable() -> None:
    outcome, _ = call(CHAT, ask(), [http(200, json.dumps(CHAT.whole("hi")).encode()[:-3]), Fault.CLOSE])
    assert isinstance(outcome, InvalidResponse)
