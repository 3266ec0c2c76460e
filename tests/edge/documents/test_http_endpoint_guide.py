"""The guide to HTTP endpoints: its examples send what it shows, and find the answer in what it shows."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from typing import Any, NamedTuple

import httpx
import pytest

from fairlane.config.connections.connection import Connection
from fairlane.config.loader import load_settings
from fairlane.core.clock import ManualClock
from fairlane.model.outcome import Outcome, Success
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.http.provider import HttpProvider
from fairlane_workers.providers.protocols.http_endpoint import HttpEndpointDialect
from fairlane_workers.transport import Transport
from tests.support.documents import ROOT
from tests.support.scripted_server import Exchange, Received, chunk, http, scripted_server, stream_head

PAGE = (ROOT / "docs" / "http-endpoints.md").read_text(encoding="utf-8")


class Example(NamedTuple):
    """One section of the page: its blocks, in order, by what they are."""

    title: str
    blocks: list[tuple[str, str]]

    def only(self, kind: str) -> str:
        (text,) = self.all(kind)
        return text

    def all(self, kind: str) -> list[str]:
        return [text for name, text in self.blocks if name == kind]


def _examples() -> list[Example]:
    sections = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]
    found = []
    for section in sections:
        title, _, text = section.partition("\n")
        if title.startswith("Example: "):
            blocks = re.findall(r"^```(\w+ ?\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
            found.append(Example(title, blocks))
    return found


EXAMPLES = _examples()
REQUEST = Request(
    "org/tiny",
    [{"role": "user", "content": "The capital of France?"}],
    {"max_tokens": 64},
    True,
    5.0,
    1 << 20,
)


def script(example: Example) -> list[Exchange]:
    replies = [[http(200, text.encode())] for text in (*example.all("json reply"), *example.all("json look"))]
    streams: list[Exchange] = [
        [stream_head({"content-type": "application/x-ndjson"}), chunk(text.encode()), chunk(b"")]
        for text in example.all("json stream")
    ]
    return [*replies, *streams]


def play(example: Example) -> tuple[Outcome, list[Received]]:
    settings: dict[str, Any] = tomllib.loads(example.only("toml"))["connections"]["example"]

    async def no_time(_: float) -> None:
        pass

    async def scenario() -> tuple[Outcome, list[Received]]:
        async with scripted_server(script(example)) as server:
            connection = Connection.model_validate({**settings, "base_url": server.url})
            dialect = HttpEndpointDialect.of(connection)
            url = httpx.URL(server.url)
            provider = HttpProvider("example", dialect, url, Transport(), ManualClock(), pause=no_time)
            try:
                return await provider.call(REQUEST), server.received
            finally:
                await provider.aclose()

    return asyncio.run(scenario())


def test_there_are_three() -> None:
    assert len(EXAMPLES) == 3


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_an_example_sends_what_it_shows_and_finds_the_answer(example: Example) -> None:
    outcome, received = play(example)
    assert isinstance(outcome, Success)
    assert outcome.output == "Paris."
    assert received[0].json == json.loads(example.only("json request"))
    assert len(received) == len(script(example))


def test_what_the_examples_say_of_paths_and_counts_is_so() -> None:
    generator, lines, jobs = (play(example) for example in EXAMPLES)
    assert generator[1][0].path == "/models/org%2Ftiny/generate"
    assert isinstance(generator[0], Success)
    assert (generator[0].usage.output_tokens, generator[0].finish_reason) == (2, "eos_token")
    assert isinstance(lines[0], Success)
    assert (lines[0].usage.input_tokens, lines[0].usage.output_tokens) == (6, 2)
    assert [each.path for each in jobs[1]] == ["/jobs", "/jobs/j-17", "/jobs/j-17"]


def test_the_first_block_and_its_lane_are_as_the_page_says() -> None:
    first = re.findall(r"^```toml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)[0]
    settings = load_settings(environ={}, **tomllib.loads(first))
    lane = settings.lane_of("mine:whatever")
    assert lane == "http:llm.example.com:8080"
    assert f"`{lane}`" in PAGE
