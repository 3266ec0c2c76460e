"""SDKs inside a function: under a lane each sends one request, elsewhere they retry as configured."""

from __future__ import annotations

import asyncio
import gc
import http.server
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from multiprocessing.pool import ThreadPool
from types import ModuleType
from typing import Any

import anthropic
import boto3
import groq
import litellm
import openai
import pytest
import together
from botocore.config import Config
from google import genai
from google.genai import types

from fairlane_workers.functions.nested_retries import without_nested_retries

pytestmark = pytest.mark.filterwarnings("ignore")  # of the SDKs, in whichever test they are collected


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """SDKs leave loops and sockets open on their threads: they are collected where no warning fails."""
    yield
    gc.collect()


HELLO: Any = [{"role": "user", "content": "Hi"}]


class Busy:
    """A server that answers each request with 429, and counts them."""

    def __init__(self) -> None:
        counted = self
        self.requests = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                counted.requests += 1
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.send_response(429)
                self.send_header("retry-after-ms", "1")
                self.send_header("Content-Length", "2")
                self.send_header("x-amzn-ErrorType", "ThrottlingException")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                """Says nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def busy() -> Iterator[Busy]:
    made = Busy()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def with_openai(url: str) -> None:
    with openai.OpenAI(base_url=url, api_key="k", max_retries=2) as client:
        client.chat.completions.create(model="m", messages=HELLO)


def with_groq(url: str) -> None:
    with groq.Groq(base_url=url, api_key="k", max_retries=2) as client:
        client.chat.completions.create(model="m", messages=HELLO)


def with_together(url: str) -> None:
    with together.Together(base_url=url, api_key="k", max_retries=2) as client:
        client.chat.completions.create(model="m", messages=HELLO)


def on_a_pools_thread(url: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(with_openai, url).result()


def on_a_multiprocessing_thread(url: str) -> None:
    with ThreadPool(1) as pool:
        pool.apply(with_openai, (url,))


def on_a_thread_of_its_own(url: str) -> None:
    def quietly() -> None:
        with suppress(Exception):
            with_openai(url)

    thread = threading.Thread(target=quietly)
    thread.start()
    thread.join()


def with_anthropic(url: str) -> None:
    with anthropic.Anthropic(base_url=url, api_key="k", max_retries=2) as client:
        client.messages.create(model="m", max_tokens=1, messages=HELLO)


def gemini(url: str) -> genai.Client:
    retries = types.HttpRetryOptions(attempts=3, initial_delay=0.001, max_delay=0.001, jitter=0.001)
    return genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url, retry_options=retries))


def with_genai(url: str) -> None:
    client = gemini(url)
    try:
        client.models.generate_content(model="m", contents="Hi")
    finally:
        client.close()


def with_async_genai(url: str) -> None:
    async def call() -> None:
        client = gemini(url)
        try:
            await client.aio.models.generate_content(model="m", contents="Hi")
        finally:
            await client.aio.aclose()
            client.close()

    asyncio.run(call())


def with_boto3(mode: str) -> Callable[[str], None]:
    def call(url: str) -> None:
        retries: Any = {"mode": mode, "total_max_attempts": 2}
        client = boto3.client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=url,
            aws_access_key_id="a",
            aws_secret_access_key="b",
            config=Config(retries=retries),
        )
        try:
            client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "Hi"}]}])
        finally:
            client.close()

    return call


def with_litellm(url: str) -> None:
    litellm.completion(
        model="openai/m",
        api_base=url,
        api_key="k",
        messages=HELLO,
        num_retries=2,
        retry_strategy="constant_retry",
    )


CALLS = {
    "openai": with_openai,
    "anthropic": with_anthropic,
    "google-genai": with_genai,
    "google-genai async": with_async_genai,
    "boto3 legacy": with_boto3("legacy"),
    "boto3 standard": with_boto3("standard"),
    "litellm": with_litellm,
    "groq": with_groq,
    "together": with_together,
    "on a pool's thread": on_a_pools_thread,
    "on a thread of multiprocessing": on_a_multiprocessing_thread,
    "on a thread of its own": on_a_thread_of_its_own,
}


@pytest.mark.parametrize("sdk", CALLS)
def test_an_sdk_sends_one_request_under_a_lane_and_retries_elsewhere(sdk: str, busy: Busy) -> None:
    def requests(around: Any) -> int:
        before = busy.requests
        with around, suppress(Exception):
            CALLS[sdk](busy.url)
        return busy.requests - before

    assert requests(without_nested_retries()) == 1
    assert requests(nullcontext()) > 1
    assert requests(without_nested_retries()) == 1


def test_a_pools_thread_that_was_started_under_a_lane_retries_for_others(busy: Busy) -> None:
    def requests(pool: ThreadPoolExecutor) -> int:
        before = busy.requests
        with suppress(Exception):
            pool.submit(with_openai, busy.url).result()
        return busy.requests - before

    with ThreadPoolExecutor(1) as pool:
        with without_nested_retries():
            assert requests(pool) == 1
        assert requests(pool) > 1


class OfFern:
    """As Fern makes the client of an SDK: `cohere.core.http_client.HttpClient`."""

    def __init__(self) -> None:
        self.sent = 0

    def request(self, path: str, *, retries: int = 0) -> None:
        self.sent += 1
        if retries < 2:
            self.request(path, retries=retries + 1)


def test_a_client_that_fern_makes_sends_one_request(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("some_sdk.core.http_client")
    module.HttpClient = type("HttpClient", (OfFern,), {"request": OfFern.request})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    client = module.HttpClient()

    with without_nested_retries():
        client.request("/chat")
    assert client.sent == 1
    client.request("/chat")
    assert client.sent == 4
