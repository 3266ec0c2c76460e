"""What a run is made of and how it is read: its cells, their order, records as they finish, streamed text."""

from __future__ import annotations

from collections import defaultdict
from threading import Thread

import pytest

from fairlane import JobState, RetryPolicy, RunState, SubmissionError
from fairlane.evaluators.builders import llm_judge
from fairlane.model.run import RunRef
from fairlane.store.write.runs.inbox import Outbox
from tests.integration.conftest import ODD_MODEL
from tests.support.cluster import SCHEDULER, Cluster, all_succeeded, numbered, whole
from tests.support.wait import wait_until


def test_an_empty_dataset_completes_at_once(deployment: Cluster) -> None:
    run = deployment.client.submit([], "question", model="sim:none", check=False)
    status = run.wait(timeout=60.0)
    assert (status.state, status.items, status.progress) == (RunState.COMPLETED, 0, 1.0)
    assert list(run.results()) == list(run.stream()) == []


def test_results_come_in_item_order_with_the_coordinates_of_each_cell(deployment: Cluster) -> None:
    first, second = (f"sim:{deployment.new_model(output='echo', latency_ms=10)}" for _ in range(2))
    run = deployment.client.submit(
        [{"n": 1}, {"n": 2}],
        prompts=[
            "a {{ n }}",
            [{"role": "system", "content": "be brief"}, {"role": "user", "content": "b {{ n }}"}],
        ],
        models=[first, second],
        repetitions=3,
    )
    records = all_succeeded(run)
    shown = [(r.row["n"], r.prompt, r.model, r.repetition, r.output) for r in records]
    assert shown == [
        (n, prompt, model, repetition, f"{'ab'[prompt]} {n}")
        for n in (1, 2)
        for prompt in (0, 1)
        for model in (first, second)
        for repetition in range(3)
    ]
    assert all(record.usage.total and record.latency_ms is not None for record in records)


def test_a_run_of_several_pages_hands_out_every_item_once(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=1)
    run = deployment.client.submit(({"n": n} for n in range(1203)), "{{ n }}", model=f"sim:{model}")
    records = all_succeeded(run)
    assert [record.output for record in records] == [str(n) for n in range(1203)]
    assert deployment.served(model).requests == 1203


def test_stream_yields_each_item_once_as_it_ends(deployment: Cluster) -> None:
    quick, slow = deployment.new_model(latency_ms=10), deployment.new_model(latency_ms=1500)
    rows = [{"m": slow}, *({"m": quick} for _ in range(10))]
    run = deployment.client.submit(rows, "question {{ m }}", model="sim:{{ m }}")
    items: list[int] = []
    for record in run.stream():
        assert record.state is JobState.SUCCEEDED
        if not items:
            assert not run.status().state.finished
        items.append(record.item)
    assert sorted(items) == list(range(11))
    assert items[-1] == 0
    assert sorted(record.item for record in run.stream()) == list(range(11))


def test_chunks_bring_each_output_in_pieces_while_it_is_written(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=400, chunks=6, output_tokens=60)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {})
    deployment.lanes.pause(lane)
    run = deployment.client.submit(numbered(4), "question {{ n }}", model=lane)
    pieces: dict[int, list[str]] = defaultdict(list)
    chunks = run.chunks()
    deployment.lanes.resume(lane)
    for chunk in chunks:
        pieces[chunk.item].append(chunk.text)
    records = all_succeeded(run)
    assert {record.item: record.output for record in records} == {
        item: "".join(texts) for item, texts in pieces.items()
    }
    assert all(len(texts) > 1 for texts in pieces.values())


def test_texts_are_returned_unchanged(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=10, max_output_tokens=200_000, chunks=100)
    texts = [
        "\u0000 \x1b[31m \ufffe \u2028",
        "naïve 日本語 🙂 \U0010ffff",
        '"quoted" \\ {"json": [1, null]} <tag>',
        "data: [DONE]\n\ndata: x\r\n\r\n",
        "word " * 40_000,
    ]
    run = deployment.client.submit([{"text": text} for text in texts], "{{ text }}", model=f"sim:{model}")
    assert [record.output for record in all_succeeded(run)] == texts


def test_a_lane_may_have_any_name(deployment: Cluster) -> None:
    deployment.provider.change_model(ODD_MODEL, latency_ms=20, faults={"error_500": 0.2})
    lane = f"sim:{ODD_MODEL}"
    run = deployment.client.submit(
        numbered(20),
        "question {{ n }}",
        model=lane,
        evaluators=[llm_judge(lane, "judge {{ n }} {{ output }}", {"sim": 1})],
        retry=RetryPolicy(max_attempts=20, initial_delay=0.05, max_delay=0.1),
    )
    assert {record.state for record in whole(run)} == {JobState.SUCCEEDED}
    assert run.status().retries > 0
    assert [(each.lane, each.known, each.done) for each in run.status().lanes] == [(lane, 40, 40)]
    deployment.lanes.pause(lane)
    cancelled = deployment.client.submit(numbered(5), "question {{ n }}", model=lane)
    wait_until(lambda: cancelled.status().lanes)
    cancelled.cancel()
    assert {record.state for record in whole(cancelled)} == {JobState.CANCELLED}
    deployment.lanes.resume(lane)


def test_a_call_may_last_longer_than_its_lease(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=SCHEDULER["lease_seconds"] * 1000 + 500)
    run = deployment.client.submit(numbered(3), "question {{ n }}", model=f"sim:{model}")
    assert {record.attempts for record in all_succeeded(run)} == {1}
    assert deployment.served(model).requests == 3


def test_a_listener_that_joins_in_mid_call_gets_the_remaining_chunks(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=2500, chunks=40, output_tokens=80)
    run = deployment.client.submit(numbered(1), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: deployment.served(model).in_flight)
    heard = "".join(chunk.text for chunk in run.chunks())
    (record,) = all_succeeded(run)
    assert record.output is not None
    assert heard
    assert record.output.endswith(heard)


def test_a_run_is_found_again_by_another_client_and_waited_for(deployment: Cluster) -> None:
    submitted = deployment.client.submit(
        numbered(5),
        "question {{ n }}",
        model=f"sim:{deployment.new_model(latency_ms=200)}",
        name="found again",
    )
    found = deployment.client.run(submitted.id)
    assert found.name == "found again"
    assert len(all_succeeded(found)) == 5
    assert submitted.id in {status.run for status in deployment.client.runs()}


def test_several_threads_may_wait_for_and_read_one_run(deployment: Cluster) -> None:
    run = deployment.client.submit(
        numbered(30), "question {{ n }}", model=f"sim:{deployment.new_model(latency_ms=100)}"
    )
    seen: list[list[int]] = []
    readers = [Thread(target=lambda: seen.append(sorted(r.item for r in run.stream()))) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(30.0)
    assert seen == [list(range(30))] * 3


def test_what_a_hostile_client_writes_is_refused_with_a_reason(deployment: Cluster) -> None:
    ref, keys = RunRef("search", "hostile"), deployment.keys
    deployment.redis.set(keys.spec(ref), '{"run": "another", "rows": -1}', ex=60)
    Outbox(deployment.redis, keys)._ask(ref, "submit")
    deployment.redis.rpush(keys.inbox("search"), "not json at all")
    wait_until(lambda: deployment.redis.exists(keys.state(ref)))
    run = deployment.client.run("hostile")
    assert run.status().state is RunState.REFUSED
    assert run.status().reason
    with pytest.raises(SubmissionError, match="was refused"):
        list(run.results())


def test_a_model_template_that_names_no_connection_makes_its_item_invalid(deployment: Cluster) -> None:
    rows = [{"m": f"sim:{deployment.new_model(latency_ms=10)}"}, {"m": "sin:fast"}, {"m": "nonsense"}]
    run = deployment.client.submit(rows, "question", model="{{ m }}")
    fine, unknown, malformed = whole(run)
    assert fine.state is JobState.SUCCEEDED
    assert (unknown.state, malformed.state) == (JobState.INVALID, JobState.INVALID)
    assert "sim" in (unknown.error or "")
