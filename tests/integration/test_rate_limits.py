"""Four worker processes share one lane's budget: a server that holds them to it never has to refuse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane.testing import SimulatedModel, max_admitted_in_window
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered

WORKERS, SLOTS = 4, 20
PER_MINUTE, PER_SECOND = 1800, 30
WINDOW = 12

MODELS = {
    "warm": SimulatedModel(latency_ms=300),
    "strict": SimulatedModel(requests_per_minute=PER_MINUTE, burst_seconds=1.0, latency_ms=300),
    "narrow": SimulatedModel(max_concurrency=WINDOW, latency_ms=100),
    "metered": SimulatedModel(tokens_per_minute=60_000, burst_seconds=1.0, latency_ms=100, output_tokens=40),
    "unstated": SimulatedModel(requests_per_minute=PER_MINUTE, burst_seconds=1.0, latency_ms=100),
}
LANES = f"""
[lanes."sim:strict"]
requests_per_minute = {PER_MINUTE}
burst_seconds = 1.0
[lanes."sim:narrow"]
max_concurrency = {WINDOW}
[lanes."sim:metered"]
tokens_per_minute = 60000
burst_seconds = 1.0
"""


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four workers that have each made calls before: connections are open, templates compiled."""
    directory = tmp_path_factory.mktemp("four")
    with cluster(directory, MODELS, config=LANES, workers=WORKERS, slots=SLOTS) as deployment:
        run = deployment.client.submit(numbered(WORKERS * SLOTS), "warm up {{ n }}", model="sim:warm")
        all_succeeded(run)
        assert deployment.served("warm").peak_in_flight > SLOTS
        yield deployment


def test_four_processes_never_exceed_a_stated_rate_and_its_burst(four: Cluster) -> None:
    run = four.client.submit(numbered(150), "question {{ n }}", model="sim:strict")
    all_succeeded(run)
    served = four.served("strict")
    assert (served.requests, served.rejected, served.duplicates) == (150, 0, 0)
    for seconds in range(1, len(served.admissions_per_second) + 1):
        most = max_admitted_in_window(served.admissions_per_second, seconds)
        assert most <= PER_SECOND * seconds + PER_SECOND


def test_four_processes_never_have_more_in_flight_than_the_window_and_use_all_of_it(four: Cluster) -> None:
    run = four.client.submit(numbered(120), "question {{ n }}", model="sim:narrow")
    all_succeeded(run)
    served = four.served("narrow")
    assert (served.requests, served.rejected) == (120, 0)
    assert served.peak_in_flight == WINDOW


def test_four_processes_never_exceed_a_stated_token_rate(four: Cluster) -> None:
    run = four.client.submit(numbered(60), "question {{ n }}", model="sim:metered", params={"max_tokens": 40})
    all_succeeded(run)
    served = four.served("metered")
    assert (served.requests, served.rejected) == (60, 0)
    assert served.prompt_tokens + served.completion_tokens > 2 * 60_000 / 60


def test_a_lane_without_a_stated_rate_learns_it_and_loses_no_job(four: Cluster) -> None:
    run = four.client.submit(numbered(90), "question {{ n }}", model="sim:unstated")
    records = all_succeeded(run)
    assert {record.attempts for record in records} == {1}
    served, status = four.served("unstated"), run.status()
    assert served.rejected == status.rate_limits > 0
    assert status.retries == 0
    learned = four.lanes.view("sim:unstated").learned_per_minute
    assert learned is not None
    assert served.completed == 90
