"""A copy of an attempt's message, whenever it comes, causes no second call."""

from __future__ import annotations

from fairlane.events import Event
from fairlane.job import Attempt
from fairlane_scheduler.publisher import Publisher
from tests.support.cluster import Cluster, all_succeeded, numbered
from tests.support.wait import wait_until

JOBS, AT_ONCE = 40, 8


def test_copies_before_during_and_after_a_call_cause_none(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=300)
    lane = f"sim:{model}"
    deployment.lanes.limit(lane, {"max_concurrency": AT_ONCE})
    run = deployment.client.submit(numbered(JOBS), "question {{ n }}", model=lane)
    publisher = Publisher(deployment.settings)
    try:
        for done in (0, JOBS // 4, JOBS // 2, JOBS):
            wait_until(lambda done=done: run.status().jobs_done >= done and deployment.served(model).requests)
            for job in range(JOBS):
                publisher.publish(Attempt(run.id, run.team, job, 1, lane))
            publisher.flush()
    finally:
        publisher.close()
    records = all_succeeded(run)
    wait_until(lambda: len(deployment.logged(Event.STALE_CLAIM, run=run.id)) >= 4 * JOBS - JOBS)
    served = deployment.served(model)
    assert (served.requests, served.duplicates) == (JOBS, 0)
    assert served.peak_in_flight <= AT_ONCE
    assert {record.attempts for record in records} == {1}
    assert run.status().late_reports == 0


def test_a_forged_message_is_dropped(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=10)
    lane = f"sim:{model}"
    run = deployment.client.submit(numbered(3), "question {{ n }}", model=lane)
    all_succeeded(run)
    publisher = Publisher(deployment.settings)
    try:
        for forged in (Attempt(run.id, run.team, 99, 1, lane), Attempt("none", "nobody", 0, 1, lane)):
            publisher.publish(forged)
            publisher.flush()
            wait_until(
                lambda forged=forged: deployment.logged(Event.STALE_CLAIM, run=forged.run, job=forged.job)
            )
    finally:
        publisher.close()
    assert deployment.served(model).requests == 3
