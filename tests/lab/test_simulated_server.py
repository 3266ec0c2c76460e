"""The simulated provider answers, limits and fails over real HTTP as configured."""

import json
from typing import Any

import httpx
import pytest

from fairlane.core.errors import LocalStackError
from fairlane.testing import (
    Faults,
    ManualClock,
    ModelStats,
    ServedProvider,
    SimulatedModel,
    SimulatedProvider,
    SimulatorConfig,
    serve_in_thread,
)

OPENAI, ANTHROPIC = "/v1/chat/completions", "/v1/messages"
PROTOCOLS = pytest.mark.parametrize("path", [OPENAI, ANTHROPIC], ids=["openai", "anthropic"])
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def body(prompt: str = "Why?", **more: Any) -> dict[str, Any]:
    return {"model": "fast", "messages": [{"role": "user", "content": prompt}], "max_tokens": 64, **more}


def config(api_key: str | None = None, **fields: Any) -> SimulatorConfig:
    fields = {"latency_ms": 0, **fields}
    return SimulatorConfig.model_validate({"models": {"fast": fields}, "api_key": api_key})


def post(served: ServedProvider, path: str = OPENAI, **more: Any) -> httpx.Response:
    return httpx.post(served.url + path, json=body(**more), timeout=10)


def books(served: ServedProvider) -> ModelStats:
    return served.stats().models["fast"]


@PROTOCOLS
def test_a_model_answers_in_both_protocols(path: str) -> None:
    with serve_in_thread(config(output="echo")) as served:
        answer = post(served, path)
        assert answer.status_code == 200
        assert "Why?" in answer.text
        stats = books(served)
        assert (stats.requests, stats.admitted, stats.completed, stats.in_flight) == (1, 1, 1, 0)
        assert (stats.prompt_tokens, stats.completion_tokens) == (1, 1)


@PROTOCOLS
def test_the_events_of_a_stream_contain_the_whole_text(path: str) -> None:
    with serve_in_thread(config(output="fixed", fixed_text="four words are enough")) as served:
        answer = post(served, path, stream=True)
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        events = [
            line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: {")
        ]
        sent = [json.loads(event) for event in events]
        if path == OPENAI:
            texts = [choice["delta"].get("content", "") for event in sent for choice in event["choices"]]
        else:
            texts = [event["delta"]["text"] for event in sent if event["type"] == "content_block_delta"]
        assert "".join(texts) == "four words are enough"
        assert books(served).completed == 1


@pytest.mark.parametrize(
    ("path", "headers"), [(OPENAI, {"Authorization": "Bearer k-1"}), (ANTHROPIC, {"x-api-key": "k-1"})]
)
def test_a_configured_key_is_required(path: str, headers: dict[str, str]) -> None:
    with serve_in_thread(config(api_key="k-1")) as served:
        rejected = post(served, path)
        assert rejected.status_code == 401
        assert "k-1" not in rejected.text
        assert httpx.get(f"{served.url}/v1/models").status_code == 401
        assert httpx.post(served.url + path, json=body(), headers=headers).status_code == 200
        assert served.stats().unauthorized == 2
        assert books(served).requests == 1


@PROTOCOLS
def test_an_unknown_model_is_not_found(path: str) -> None:
    with serve_in_thread(config()) as served:
        answer = post(served, path, model="slow")
        assert answer.status_code == 404
        assert "slow" in answer.json()["error"]["message"]
        assert served.stats().unknown_model == 1


@PROTOCOLS
@pytest.mark.parametrize("content", [b"{", b'{"model": "fast"}', b"\xff"])
def test_an_invalid_request_is_answered_400(path: str, content: bytes) -> None:
    with serve_in_thread(config()) as served:
        answer = httpx.post(served.url + path, content=content)
        assert answer.status_code == 400
        assert answer.json()["error"]["type"] == "invalid_request_error"
        assert served.stats().bad_requests == 1


@PROTOCOLS
def test_a_body_that_is_too_large_is_answered_413(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.lab.simulator.http.server.MAX_BODY_BYTES", 1000)
    with serve_in_thread(config()) as served:
        answer = post(served, path, prompt="x" * 1000)
        assert answer.status_code == 413
        assert answer.json()["error"]["message"]
        assert served.stats().bad_requests == 1


def test_the_models_are_listed() -> None:
    with serve_in_thread(config()) as served:
        listed = httpx.get(f"{served.base_url}/models").json()
        assert [model["id"] for model in listed["data"]] == ["fast"]


def test_the_limit_is_exact_and_its_429_reports_the_wait() -> None:
    clock = ManualClock()
    with serve_in_thread(config(requests_per_minute=180, headers="full"), clock=clock) as served:
        answers = [post(served) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        remaining = [answer.headers["x-ratelimit-remaining-requests"] for answer in answers]
        assert remaining == ["2", "1", "0", "0"]
        assert answers[3].headers["retry-after-ms"] == "334"
        assert answers[3].json()["error"]["code"] == "rate_limit_exceeded"
        clock.advance(0.333)
        assert post(served).status_code == 429
        clock.advance(0.001)
        assert post(served).status_code == 200
        stats = books(served)
        assert (stats.admitted, stats.rejected, stats.rejected_by.requests) == (4, 2, 2)


@pytest.mark.parametrize(
    ("headers", "on_success", "on_429"),
    [
        ("none", set(), set()),
        ("retry_after", set(), {"retry-after", "retry-after-ms"}),
        ("ratelimit", {"x-ratelimit-limit-requests"}, {"x-ratelimit-limit-requests"}),
        (
            "full",
            {"x-ratelimit-limit-requests"},
            {"retry-after", "retry-after-ms", "x-ratelimit-limit-requests"},
        ),
    ],
)
def test_answers_carry_the_configured_hints(headers: str, on_success: set[str], on_429: set[str]) -> None:
    hints = {"retry-after", "retry-after-ms", "x-ratelimit-limit-requests"}
    with serve_in_thread(config(requests_per_minute=1, headers=headers), clock=ManualClock()) as served:
        assert hints & set(post(served).headers) == on_success
        assert hints & set(post(served).headers) == on_429


def test_an_anthropic_answer_carries_anthropics_headers() -> None:
    with serve_in_thread(config(requests_per_minute=1, headers="full"), clock=ManualClock()) as served:
        assert post(served, ANTHROPIC).headers["anthropic-ratelimit-requests-remaining"] == "0"
        rejected = post(served, ANTHROPIC)
        assert rejected.headers["retry-after"] == "60"
        assert rejected.json()["error"]["type"] == "rate_limit_error"


@STREAMED
def test_a_success_may_carry_retry_after(stream: bool) -> None:
    with serve_in_thread(config(success_retry_after_ms=1500, retry_after_form="fraction")) as served:
        assert post(served, stream=stream).headers["retry-after"] == "1.500"


@PROTOCOLS
@STREAMED
@pytest.mark.parametrize("status", [500, 502, 503, 529])
def test_an_error_before_any_work_has_its_status(path: str, stream: bool, status: int) -> None:
    with serve_in_thread(config(faults={f"error_{status}": 1})) as served:
        answer = post(served, path, stream=stream)
        assert answer.status_code == status
        assert answer.headers["Content-Type"].startswith("text/html" if status == 502 else "application/json")
        stats = books(served)
        assert (stats.errors, stats.completed, stats.in_flight) == ({f"error_{status}": 1}, 0, 0)


@PROTOCOLS
@STREAMED
@pytest.mark.parametrize("fault", ["reset", "reset_after_work"])
def test_a_reset_gives_no_answer(path: str, stream: bool, fault: str) -> None:
    with serve_in_thread(config(faults={fault: 1})) as served:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            post(served, path, stream=stream)
        stats = books(served)
        assert stats.errors == {fault: 1}
        assert bool(stats.completion_tokens) == (fault == "reset_after_work")


@PROTOCOLS
@STREAMED
@pytest.mark.parametrize("chunks", [1, 4])
def test_a_cut_answer_ends_in_the_middle(path: str, stream: bool, chunks: int) -> None:
    with serve_in_thread(config(chunks=chunks, faults={"cut_stream": 1})) as served:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            post(served, path, stream=stream)
        assert books(served).errors == {"cut_stream": 1}


@PROTOCOLS
@STREAMED
@pytest.mark.parametrize("chunks", [1, 4])
def test_a_malformed_answer_is_a_200_that_cannot_be_parsed(path: str, stream: bool, chunks: int) -> None:
    with serve_in_thread(config(chunks=chunks, faults={"malformed": 1})) as served:
        answer = post(served, path, stream=stream)
        assert answer.status_code == 200
        data = [line.removeprefix("data: ") for line in answer.text.split("\n") if line.startswith("data: ")]
        with pytest.raises(json.JSONDecodeError):
            [json.loads(item) for item in data or [answer.text] if item != "[DONE]"]
        assert books(served).errors == {"malformed": 1}


@PROTOCOLS
@pytest.mark.parametrize("chunks", [1, 4])
def test_an_overload_may_come_in_mid_stream(path: str, chunks: int) -> None:
    with serve_in_thread(config(chunks=chunks, faults={"error_in_stream": 1})) as served:
        answer = post(served, path, stream=True)
        last = json.loads(answer.text.rstrip().rpartition("data: ")[2])
        assert answer.status_code == 200
        assert last["error"]["type"] == "overloaded_error"
        assert "[DONE]" not in answer.text
        assert post(served, path).status_code == 529
        assert books(served).errors == {"error_in_stream": 2}


def test_an_outage_resets_every_connection_until_it_ends() -> None:
    clock = ManualClock()
    with serve_in_thread(config(outages=[[1, 2]], requests_per_minute=600), clock=clock) as served:
        assert post(served).status_code == 200
        clock.advance(1)
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            post(served)
        clock.advance(2)
        assert post(served).status_code == 200
        stats = books(served)
        assert (stats.errors, stats.admitted) == ({"outage": 1}, 2)


@PROTOCOLS
def test_an_exhausted_quota_is_reported_until_it_is_changed(path: str) -> None:
    with serve_in_thread(config(status_always="insufficient_quota")) as served:
        answer = post(served, path)
        assert answer.status_code == 429
        assert "retry-after" not in answer.headers
        served.change_model("fast", status_always=None)
        assert post(served, path).status_code == 200


def test_work_with_a_lost_answer_is_distinguished_from_work_done_twice() -> None:
    with serve_in_thread(config(faults={"reset_after_work": 1})) as served:
        with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
            post(served, prompt="a")
        served.change_model("fast", faults=Faults())
        for prompt in ("a", "b", "b"):
            post(served, prompt=prompt)
        stats = books(served)
        assert (stats.duplicates, stats.duplicates_after.reset_after_work) == (2, 1)
        assert stats.duplicates_after.completed == 1


def test_statistics_are_served_and_reset() -> None:
    with serve_in_thread(config(requests_per_minute=1), clock=ManualClock()) as served:
        assert [post(served).status_code for _ in range(2)] == [200, 429]
        sent = httpx.get(f"{served.url}/stats").json()
        assert sent["models"]["fast"]["rejected_by"] == {
            "requests": 1,
            "tokens": 0,
            "input": 0,
            "output": 0,
            "day": 0,
            "concurrency": 0,
            "burst": 0,
        }
        assert httpx.post(f"{served.url}/stats/reset").status_code == 200
        assert books(served).requests == 0
        assert post(served).status_code == 200


def test_health_needs_no_key() -> None:
    with serve_in_thread(config(api_key="k-1")) as served:
        assert httpx.get(f"{served.url}/healthz").json() == {"status": "ok"}


def test_a_provider_that_is_not_started_has_no_address() -> None:
    with pytest.raises(LocalStackError, match="start"):
        _ = SimulatedProvider(config()).base_url


def test_the_same_seed_makes_the_same_run() -> None:
    flaky = Faults(error_500=0.3, error_529=0.3)
    wanted = SimulatorConfig(models={"fast": SimulatedModel(latency_ms=0, faults=flaky)}, seed=5)

    def statuses() -> list[int]:
        with serve_in_thread(wanted) as served, httpx.Client(base_url=served.url) as client:
            return [client.post(OPENAI, json=body()).status_code for _ in range(30)]

    first = statuses()
    assert set(first) == {200, 500, 529}
    assert statuses() == first
