"""What the operator's configuration says of all runs: a cap on calls at once, and what tokens cost."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from fairlane import JobState, RunState
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered, whole

CAP = 3
PRICES = '[prices."sim:*"]\ninput = 100.0\noutput = 200.0\n'


@pytest.fixture(scope="module")
def priced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    directory = tmp_path_factory.mktemp("priced")
    with cluster(directory, config=PRICES, scheduler={"max_concurrent": CAP}, workers=1) as made:
        yield made


def test_fr_001_the_deployments_cap_holds_over_all_runs_and_lanes(priced: Cluster) -> None:
    models = [priced.new_model(latency_ms=60) for _ in range(2)]
    runs = [priced.client.submit(numbered(15), "{{ n }}", model=f"sim:{model}") for model in models]
    together = 0
    while not all(run.status().state.finished for run in runs):
        together = max(together, priced.redis.zcard(priced.keys.leases))
    for run in runs:
        all_succeeded(run)
    assert together == CAP


def test_a_budget_of_dollars_stops_a_run_before_it_is_exceeded(priced: Cluster) -> None:
    model = priced.new_model(latency_ms=2)
    run = priced.client.submit(
        numbered(200), "{{ n }}", model=f"sim:{model}", params={"max_tokens": 10}, budget_usd=0.05
    )
    records = whole(run)
    assert run.status().state is RunState.STOPPED
    assert 0 < sum(record.state is JobState.SUCCEEDED for record in records) < 200
    spent = run.summary().to_dict()["cost_usd"]
    assert 0 < spent <= 0.05


def test_a_budget_of_less_than_one_call_ends_the_run_with_the_numbers(priced: Cluster) -> None:
    model = f"sim:{priced.new_model(latency_ms=2)}"
    run = priced.client.submit(
        numbered(3), "{{ n }}", model=model, params={"max_tokens": 1000}, budget_usd=0.0001
    )
    records = whole(run)
    reason = str(run.status().reason)
    assert re.search(
        r"it may cost \$[\d.]+, and \$0\.0001 is left; continue it with a larger budget_usd", reason
    )
    assert {record.error for record in records} == {f"the run was stopped: {reason}"}


def test_an_estimate_reports_calls_tokens_and_cost_and_calls_nobody(priced: Cluster) -> None:
    model = priced.new_model(latency_ms=2)
    forecast = priced.client.estimate(
        numbered(50), "{{ n }}", model=f"sim:{model}", params={"max_tokens": 10}, repetitions=2
    )
    assert (forecast.rows, forecast.items, forecast.tasks) == (50, 100, 100)
    assert forecast.cost_usd is not None
    assert forecast.cost_usd > 0
    assert priced.served(model).requests == 0
